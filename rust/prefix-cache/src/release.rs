//! How pages leave: release, free, retire, evict, clear.

use crate::events::Event;
use crate::pool::PagePool;
use crate::waiting::Item;
use crate::{Error, PrefixCache, Result};

impl PrefixCache {
    /// Unlocks what `handle` protects and ends the handle; the pages stay cached.
    ///
    /// With a `fence` that has not retired, the lock is kept until [`Self::retire`]; the handle
    /// ends at once either way. O(nodes on the path).
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"a", &tokens);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &tokens, &row)?;
    /// cache.release(found.handle, Some(7))?; // step 7 may still read the pages
    /// assert!(cache.release(found.handle, None).is_err());
    /// assert_eq!(cache.evict(2), 0);
    /// cache.retire(7);
    /// assert_eq!(cache.evict(2), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn release(&mut self, handle: u64, fence: Option<u64>) -> Result<()> {
        let lock = self.handles.remove(handle)?;
        match self.waiting.ahead(fence) {
            Some(fence) => self.waiting.add(fence, Item::Unlock(lock)),
            None => self.tree.unlock_path(lock.node),
        }
        Ok(())
    }

    /// Releases every handle of `handles`, or none when one is stale or given twice.
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, Policy, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let tokens: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"a", &tokens);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &tokens, &row)?;
    /// let handle = found.handle;
    /// assert!(cache.release_many(&[handle, 0], None).is_err());
    /// cache.release_many(&[handle], None)?; // none was released before
    /// # Ok::<(), Error>(())
    /// ```
    pub fn release_many(&mut self, handles: &[u64], fence: Option<u64>) -> Result<()> {
        for &handle in handles {
            self.handles.get(handle)?;
        }
        let mut sorted = handles.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::StaleHandle { handle: twice[0] });
        }
        handles
            .iter()
            .try_for_each(|&handle| self.release(handle, fence))
    }

    /// Takes pages back from the caller; with a `fence` that has not retired, they are handed
    /// out again only after [`Self::retire`]. O(pages).
    ///
    /// # Errors
    /// [`Error::NotOwned`], [`Error::RepeatedPage`]; then none is freed.
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// let mut row = [0; 2];
    /// assert!(cache.alloc(&mut row));
    /// cache.free(&row, None)?;
    /// assert!(cache.free(&row, None).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn free(&mut self, pages: &[u32], fence: Option<u64>) -> Result<()> {
        match self.waiting.ahead(fence) {
            Some(fence) => {
                self.pool.defer(pages)?;
                self.waiting.add(fence, Item::Free(pages.to_vec()));
                Ok(())
            }
            None => self.pool.give_back(pages),
        }
    }

    /// Carries out every release and free whose fence is at most `step`; returns pages made free.
    ///
    /// O(what is carried out).
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// cache.free(&row, Some(7))?;
    /// assert_eq!(cache.stats().deferred, 2);
    /// assert_eq!((cache.retire(6), cache.retire(7)), (0, 2));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn retire(&mut self, step: u64) -> usize {
        let mut freed = 0;
        for item in self.waiting.due(step) {
            match item {
                Item::Unlock(lock) => self.tree.unlock_path(lock.node),
                Item::Free(pages) => {
                    self.pool.settle(&pages);
                    freed += pages.len();
                }
            }
        }
        freed
    }

    /// Frees up to `n` pages, from the tails of the least recently used leaves; returns how many.
    ///
    /// O(pages freed), whatever the size of the tree.
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
    /// assert_eq!(cache.evict(1), 1); // the tail goes first
    /// assert_eq!(cache.peek(b"a", &tokens), 4);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn evict(&mut self, n: usize) -> usize {
        let freed = self.trim(n, PagePool::give_up);
        self.counters.evicted_pages += freed as u64;
        freed
    }

    /// Drops every cached page that no handle protects; returns how many. These do not count as
    /// evicted. O(pages dropped).
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
    /// assert_eq!(cache.clear(), 2);
    /// assert_eq!(cache.stats().free, 31);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clear(&mut self) -> usize {
        if self.tree.protected > 0 {
            return self.trim(usize::MAX, PagePool::give_up);
        }
        let mut log = self.events.take();
        let dropped = self.trim(usize::MAX, PagePool::give_up);
        if let Some(log) = &mut log {
            log.push(Event::Cleared);
        }
        self.events = log;
        dropped
    }

    /// Gives up to `n` evictable pages, each victim's tail, to `take`; returns how many.
    pub(crate) fn trim(&mut self, n: usize, mut take: impl FnMut(&mut PagePool, &[u32])) -> usize {
        let mut freed = 0;
        while freed < n {
            let log = self.events.as_mut();
            let victim = self.tree.recency.victim();
            let give = |tail: &[u32]| take(&mut self.pool, tail);
            match self.tree.trim(victim, n - freed, give, log) {
                0 => break,
                pages => freed += pages,
            }
        }
        freed
    }
}
