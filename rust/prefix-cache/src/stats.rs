//! Page counts and counters.

use crate::PrefixCache;

/// Page counts now, and counters since the cache was made.
///
/// `free + evictable + protected + owned + deferred + reserved == total` at all times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pages in all.
    pub total: usize,
    /// Pages nobody owns.
    pub free: usize,
    /// Cached pages that no handle protects.
    pub evictable: usize,
    /// Cached pages that some handle protects.
    pub protected: usize,
    /// Pages that callers own.
    pub owned: usize,
    /// Pages freed behind a fence that has not retired.
    pub deferred: usize,
    /// Page 0.
    pub reserved: usize,
    /// Nodes of the tree, roots of namespaces included.
    pub nodes: usize,
    /// Handles that their callers have not released.
    pub handles: usize,
    /// Live pins.
    pub pins: usize,
    /// Pages that pins keep, a page under two pins counted twice; part of `protected`.
    pub pinned_pages: usize,
    /// Calls of `match_lock`.
    pub lookups: u64,
    /// Tokens given to `match_lock`.
    pub queried_tokens: u64,
    /// Tokens that `match_lock` found.
    pub matched_tokens: u64,
    /// Pages that `insert` passed to the tree.
    pub inserted_pages: u64,
    /// Pages that `alloc` and `evict` took from the tree.
    pub evicted_pages: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) lookups: u64,
    pub(crate) queried_tokens: u64,
    pub(crate) matched_tokens: u64,
    pub(crate) inserted_pages: u64,
    pub(crate) evicted_pages: u64,
}

impl PrefixCache {
    /// Page counts and counters. O(1).
    ///
    /// ```
    /// # use rampway_prefix_cache::{Error, PrefixCache};
    /// let s = PrefixCache::new(32, 4)?.stats();
    /// let all = s.free + s.evictable + s.protected + s.owned + s.deferred + s.reserved;
    /// assert_eq!(all, s.total);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = &self.counters;
        Stats {
            total: self.pool.total(),
            free: self.pool.free(),
            evictable: self.tree.evictable,
            protected: self.tree.protected,
            owned: self.pool.owned,
            deferred: self.pool.deferred,
            reserved: 1,
            nodes: self.tree.nodes.len(),
            handles: self.handles.len(),
            pins: self.pins.len(),
            pinned_pages: self.pins.pages,
            lookups: counters.lookups,
            queried_tokens: counters.queried_tokens,
            matched_tokens: counters.matched_tokens,
            inserted_pages: counters.inserted_pages,
            evicted_pages: counters.evicted_pages,
        }
    }
}
