//! The operations: each checks its arguments first, then cannot fail.

use crate::events::EventLog;
use crate::handles::{Handles, Lock};
use crate::pins::Pins;
use crate::pool::PagePool;
use crate::recency::{Policy, TOP};
use crate::stats::Counters;
use crate::token::first_out_of_range;
use crate::tree::{NIL, Place, Tree, to_u32};
use crate::waiting::Waiting;
use crate::{Error, Result, TokenId};

/// A locked prefix, from [`PrefixCache::match_lock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a handle that is never released protects its pages for ever"]
pub struct Match {
    /// To be released once.
    pub handle: u64,
    /// Tokens found: whole pages.
    pub matched_tokens: usize,
}

/// What [`PrefixCache::insert`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Pages, from the start of the row, that are the tree's and protected by the handle.
    pub held: usize,
    /// Pages that passed from the caller to the tree.
    pub adopted: usize,
    /// The caller's pages whose tokens were cached already. They stay the caller's, who reads
    /// the tree's with [`PrefixCache::fill_pages`] and frees these.
    pub duplicates: Vec<u32>,
}

/// A radix tree over token pages and the allocator of those pages. See the crate's example.
///
/// One caller at a time (`&mut self`). After an error the cache is as it was before the call.
#[derive(Debug)]
pub struct PrefixCache {
    pub(crate) tree: Tree,
    pub(crate) pool: PagePool,
    pub(crate) handles: Handles,
    pub(crate) waiting: Waiting,
    pub(crate) pins: Pins,
    pub(crate) events: Option<EventLog>,
    pub(crate) counters: Counters,
}

impl PrefixCache {
    /// Makes an empty cache of `num_pages` pages (page 0 reserved) of `page_size` tokens that
    /// evicts what was used longest ago.
    ///
    /// O(`num_pages`); nothing after this costs more than what it touches.
    ///
    /// # Errors
    /// [`Error::NumPages`], [`Error::PageSize`].
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, PrefixCache};
    /// assert_eq!(PrefixCache::new(64, 16)?.stats().free, 63);
    /// assert_eq!(PrefixCache::new(64, 12).unwrap_err(), Error::PageSize { got: 12 });
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(num_pages: usize, page_size: usize) -> Result<Self> {
        Self::with_policy(num_pages, page_size, Policy::Lru)
    }

    /// As [`Self::new`], with another eviction policy.
    ///
    /// # Errors
    /// [`Error::NumPages`], [`Error::PageSize`].
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// let cache = PrefixCache::with_policy(64, 16, Policy::Slru)?;
    /// # assert_eq!(cache.page_size(), 16);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn with_policy(num_pages: usize, page_size: usize, policy: Policy) -> Result<Self> {
        const LARGEST: usize = 65536;
        if !page_size.is_power_of_two() || page_size > LARGEST {
            return Err(Error::PageSize { got: page_size });
        }
        Ok(Self {
            tree: Tree::new(page_size, policy),
            pool: PagePool::new(num_pages)?,
            handles: Handles::default(),
            waiting: Waiting::default(),
            pins: Pins::new(num_pages / 4),
            events: None,
            counters: Counters::default(),
        })
    }

    /// Tokens in a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.tree.page_size
    }

    /// Pages in all, the reserved one included.
    #[must_use]
    pub fn num_pages(&self) -> usize {
        self.pool.total()
    }

    /// Finds the longest cached prefix of `tokens` in whole pages and locks it.
    ///
    /// Returns a handle (also when nothing matched) and the number of tokens found. The lock
    /// covers exactly these: a node matched in part is split. Pass all tokens but the last if
    /// one must be left to compute. A token above [`crate::MAX_ID`] matches nothing.
    ///
    /// O(tokens found + nodes on the path); a miss is O(1) in the number of tokens and children.
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"a", &tokens);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &tokens, &row)?;
    /// # cache.release(found.handle, None)?;
    /// let hit = cache.match_lock(b"a", &tokens[..7]); // leave a token to compute
    /// assert_eq!(hit.matched_tokens, 4);
    /// assert_eq!(cache.stats().protected, 1);
    /// let miss = cache.match_lock(b"b", &tokens); // another namespace
    /// assert_eq!(miss.matched_tokens, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn match_lock<T: TokenId>(&mut self, namespace: &[u8], tokens: &[T]) -> Match {
        let root = self.tree.lock_root(namespace);
        let (node, pages) = self.tree.lock_below(root, self.whole_pages(tokens), 1);
        let matched_tokens = pages * self.tree.page_size;
        self.counters.lookups += 1;
        self.counters.queried_tokens += tokens.len() as u64;
        self.counters.matched_tokens += matched_tokens as u64;
        let held = to_u32(pages);
        Match {
            handle: self.handles.add(Lock {
                node,
                held,
                priority: 0,
            }),
            matched_tokens,
        }
    }

    /// Returns how many tokens [`Self::match_lock`] would find; changes nothing, not even
    /// recency. Same cost.
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"a", &tokens);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &tokens, &row)?;
    /// # cache.release(found.handle, None)?;
    /// assert_eq!(cache.peek(b"a", &tokens), 8);
    /// assert_eq!(cache.peek(b"b", &tokens), 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn peek<T: TokenId>(&self, namespace: &[u8], tokens: &[T]) -> usize {
        self.tree.find_root(namespace).map_or(0, |root| {
            let (_, found) = self.tree.find_below(root, self.whole_pages(tokens));
            found * self.tree.page_size
        })
    }

    /// Writes the pages that `handle` protects to the start of `out`; returns how many.
    ///
    /// O(pages written).
    ///
    /// # Errors
    /// [`Error::StaleHandle`]; [`Error::TooShort`] when they do not fit.
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"a", &tokens);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &tokens, &row)?;
    /// let mut pages = [0; 2];
    /// assert_eq!(cache.fill_pages(found.handle, &mut pages)?, 2);
    /// assert_eq!(pages, row);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn fill_pages(&self, handle: u64, out: &mut [u32]) -> Result<usize> {
        let Lock { mut node, held, .. } = self.handles.get(handle)?;
        let held = held as usize;
        let got = out.len();
        let mut rest = out
            .get_mut(..held)
            .ok_or(Error::TooShort { got, need: held })?;
        while node != NIL {
            let pages = self.tree.pages(node);
            let (above, own) = rest.split_at_mut(rest.len() - pages.len());
            own.copy_from_slice(pages);
            rest = above;
            node = self.tree.nodes[node].parent;
        }
        Ok(held)
    }

    /// Fills `out` with pages that are now the caller's, evicting if needed; or returns false
    /// and changes nothing when free and evictable pages are too few.
    ///
    /// O(pages handed out).
    ///
    /// ```
    /// # use rampway_prefix_cache::PrefixCache;
    /// let mut cache = PrefixCache::new(4, 16)?;
    /// assert!(cache.alloc(&mut [0; 3]));
    /// assert!(!cache.alloc(&mut [0; 1]));
    /// # Ok::<(), rampway_prefix_cache::Error>(())
    /// ```
    #[must_use]
    pub fn alloc(&mut self, out: &mut [u32]) -> bool {
        if out.len() > self.available() {
            return false;
        }
        let missing = out.len().saturating_sub(self.pool.free());
        let (mut evicted, free) = out.split_at_mut(missing);
        self.pool.take(free);
        // From the back: what goes last is handed out first, as if it had been freed in between.
        let gone = self.trim(missing, |pool, pages| {
            let rest = std::mem::take(&mut evicted);
            let (rest, own) = rest.split_at_mut(rest.len() - pages.len());
            own.copy_from_slice(pages);
            pool.hand_over(pages);
            evicted = rest;
        });
        self.counters.evicted_pages += gone as u64;
        true
    }

    /// Publishes the whole pages of `tokens`, whose KV is computed, for others to match.
    ///
    /// `tokens` and `pages` start at token 0, as a request's row does; what the handle protects
    /// already is not read again. Afterwards the handle protects all whole pages of `tokens`, or
    /// as many as the namespace's quota allows ([`Self::set_quota`]). The pages behind them stay
    /// the caller's, and so do [`Inserted::duplicates`].
    ///
    /// O(new tokens + nodes on the path).
    ///
    /// # Errors
    /// [`Error::StaleHandle`]; [`Error::TooShort`] when there are fewer pages than whole pages of
    /// tokens; [`Error::TokenOutOfRange`]; [`Error::NotOwned`] and [`Error::RepeatedPage`] for
    /// new pages that are not the caller's, each once.
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// // Two requests compute the same prompt at the same time; the second one gives back.
    /// let (one, two) = (cache.match_lock(b"", &tokens), cache.match_lock(b"", &tokens));
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// assert!(cache.alloc(&mut first) && cache.alloc(&mut second));
    /// assert_eq!(cache.insert(one.handle, &tokens, &first)?.adopted, 2);
    /// let done = cache.insert(two.handle, &tokens, &second)?;
    /// assert_eq!(done.duplicates, second);
    /// cache.free(&done.duplicates, None)?;
    /// cache.fill_pages(two.handle, &mut second)?;
    /// assert_eq!(second, first);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn insert<T: TokenId>(
        &mut self,
        handle: u64,
        tokens: &[T],
        pages: &[u32],
    ) -> Result<Inserted> {
        let lock = self.handles.get(handle)?;
        let have = lock.held as usize;
        let tokens = self.whole_pages(tokens);
        let whole = tokens.len() / self.tree.page_size;
        if whole <= have {
            return Ok(Inserted {
                held: have,
                ..Inserted::default()
            });
        }
        if pages.len() < whole {
            return Err(Error::TooShort {
                got: pages.len(),
                need: whole,
            });
        }
        let fresh = &tokens[have * self.tree.page_size..];
        let (above, known) = self.tree.find_below(lock.node, fresh);
        let (cached, new) = fresh.split_at(known * self.tree.page_size);
        let offered = &pages[have..whole];
        let place = Place {
            node: above,
            is_held: known == 0,
            priority: lock.priority,
        };
        let Some(staged) = self.tree.stage(place, new, &offered[known..]) else {
            return Err(first_out_of_range(tokens));
        };
        self.pool.adopt(offered)?;

        // Nothing fails from here on; before, nothing changed.
        let (node, _) = self.tree.lock_below(lock.node, cached, 0);
        let duplicates = &offered[..known];
        let adopted = self.room_for(node, whole - have - known);
        let held = have + known + adopted;
        self.pool.hand_over(duplicates);
        self.pool.hand_over(&pages[held..whole]);
        self.tell(node, new, &pages[have + known..held]);
        let node = self.tree.publish(node, staged, adopted, lock.priority);
        let held_pages = to_u32(held);
        self.handles.set(
            handle,
            Lock {
                node,
                held: held_pages,
                ..lock
            },
        )?;
        if lock.priority > 0 {
            self.tree.raise_priority(node, lock.priority);
        }
        self.counters.inserted_pages += adopted as u64;
        Ok(Inserted {
            held,
            adopted,
            duplicates: duplicates.to_vec(),
        })
    }

    /// Tells that `adopted` pages, which hold the first of `tokens`, will come below `node`.
    fn tell<T: TokenId>(&mut self, node: u32, tokens: &[T], adopted: &[u32]) {
        let Some(log) = self.events.as_mut().filter(|_| !adopted.is_empty()) else {
            return;
        };
        let parent = self.tree.pages(node).last().copied();
        let tokens = &tokens[..adopted.len() * self.tree.page_size];
        log.stored(self.tree.namespace_of(node), parent, adopted, tokens);
    }

    /// Raises the priority of what `handle` protects, and of what is inserted through it later,
    /// to at least `priority`; a higher one is evicted later under [`Policy::Priority`] and
    /// means nothing under the others. Above 63 counts as 63. O(nodes on the path).
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// let mut cache = PrefixCache::with_policy(8, 4, Policy::Priority)?;
    /// for (priority, tokens) in [(9, [1; 4]), (0, [2; 4])] {
    ///     let found = cache.match_lock(b"", &tokens);
    ///     cache.prioritize(found.handle, priority)?;
    ///     let mut row = [0];
    ///     assert!(cache.alloc(&mut row));
    ///     cache.insert(found.handle, &tokens, &row)?;
    ///     cache.release(found.handle, None)?;
    /// }
    /// cache.evict(1);
    /// assert_eq!((cache.peek(b"", &[1; 4]), cache.peek(b"", &[2; 4])), (4, 0));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prioritize(&mut self, handle: u64, priority: u8) -> Result<()> {
        let lock = self.handles.get(handle)?;
        let priority = priority.min(TOP).max(lock.priority);
        self.handles.set(handle, Lock { priority, ..lock })?;
        self.tree.raise_priority(lock.node, priority);
        Ok(())
    }

    /// Free and evictable pages: what `alloc` could hand out now. O(1).
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"a", &tokens);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &tokens, &row)?;
    /// # cache.release(found.handle, None)?;
    /// assert_eq!(cache.available(), 31); // cached, but evictable
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn available(&self) -> usize {
        self.pool.free() + self.tree.evictable
    }

    pub(crate) fn whole_pages<'t, T>(&self, tokens: &'t [T]) -> &'t [T] {
        &tokens[..tokens.len() & !(self.tree.page_size - 1)]
    }
}
