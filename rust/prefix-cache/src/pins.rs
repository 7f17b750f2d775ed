//! Pins: prefixes kept in the cache until a deadline, within a quota. Knows no clock.

use std::collections::{BTreeMap, BTreeSet};

use crate::handles::Lock;
use crate::tree::to_u32;
use crate::{Error, PrefixCache, Result, TokenId};

/// A pinned prefix, from [`PrefixCache::pin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// For [`PrefixCache::unpin`]; never used twice.
    pub id: u64,
    /// Tokens it keeps: whole pages.
    pub tokens: usize,
}

/// Live pins by id and by deadline; the deadline is in the caller's unit.
#[derive(Debug)]
pub(crate) struct Pins {
    by_id: BTreeMap<u64, (Lock, u64)>,
    by_deadline: BTreeSet<(u64, u64)>,
    next: u64,
    /// Sum over pins; a page under two pins counts twice.
    pub(crate) pages: usize,
    pub(crate) quota: usize,
}

impl Pins {
    pub(crate) const fn new(quota: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            next: 1,
            pages: 0,
            quota,
        }
    }

    fn add(&mut self, lock: Lock, deadline: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.pages += lock.held as usize;
        self.by_id.insert(id, (lock, deadline));
        self.by_deadline.insert((deadline, id));
        id
    }

    fn remove(&mut self, id: u64) -> Option<Lock> {
        let (lock, deadline) = self.by_id.remove(&id)?;
        self.by_deadline.remove(&(deadline, id));
        self.pages -= lock.held as usize;
        Some(lock)
    }

    fn first_due(&self, now: u64) -> Option<u64> {
        let &(deadline, id) = self.by_deadline.first()?;
        (deadline <= now).then_some(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = Lock> {
        self.by_id.values().map(|(lock, _)| *lock)
    }
}

impl PrefixCache {
    /// Keeps the cached prefix of `tokens` until `deadline` or [`Self::unpin`].
    ///
    /// `None` when no page of it is cached. The deadline is in any unit that
    /// [`Self::expire_pins`] is called with. Not a lookup: counters and hits stay as they are.
    /// O(tokens found + nodes on the path + log of the pins).
    ///
    /// # Errors
    /// [`Error::PinQuota`] when all pins together would keep more pages than the quota, a
    /// quarter of all pages unless [`Self::set_pin_quota`] says otherwise.
    ///
    /// ```
    /// # use rampway_prefix_cache::PrefixCache;
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// # let system: Vec<u32> = (0..8).collect();
    /// # let found = cache.match_lock(b"", &system);
    /// # let mut row = [0; 2];
    /// # assert!(cache.alloc(&mut row));
    /// # cache.insert(found.handle, &system, &row)?;
    /// # cache.release(found.handle, None)?;
    /// let pin = cache.pin(b"", &system, 60)?.expect("the prompt is cached");
    /// assert_eq!(pin.tokens, 8);
    /// assert_eq!(cache.evict(9), 0);
    /// assert_eq!(cache.expire_pins(60), 1);
    /// assert_eq!(cache.evict(9), 2);
    /// # Ok::<(), rampway_prefix_cache::Error>(())
    /// ```
    pub fn pin<T: TokenId>(
        &mut self,
        namespace: &[u8],
        tokens: &[T],
        deadline: u64,
    ) -> Result<Option<Pin>> {
        let need = self.peek(namespace, tokens) / self.tree.page_size;
        if need == 0 {
            return Ok(None);
        }
        let left = self.pins.quota.saturating_sub(self.pins.pages);
        if need > left {
            return Err(Error::PinQuota { need, left });
        }
        let root = self.tree.lock_root(namespace);
        let (node, pages) = self.tree.lock_below(root, self.whole_pages(tokens), 0);
        let held = to_u32(pages);
        Ok(Some(Pin {
            id: self.pins.add(
                Lock {
                    node,
                    held,
                    priority: 0,
                },
                deadline,
            ),
            tokens: pages * self.tree.page_size,
        }))
    }

    /// Ends a pin before its deadline; false when it has ended already. O(nodes on the path).
    pub fn unpin(&mut self, id: u64) -> bool {
        let lock = self.pins.remove(id);
        if let Some(lock) = lock {
            self.tree.unlock_path(lock.node);
        }
        lock.is_some()
    }

    /// Ends every pin whose deadline is `now` or earlier; returns how many. O(those).
    pub fn expire_pins(&mut self, now: u64) -> usize {
        let mut ended = 0;
        while let Some(id) = self.pins.first_due(now) {
            self.unpin(id);
            ended += 1;
        }
        ended
    }

    /// Sets how many pages all pins together may keep; those there are stay. O(1).
    pub fn set_pin_quota(&mut self, pages: usize) {
        self.pins.quota = pages;
    }
}
