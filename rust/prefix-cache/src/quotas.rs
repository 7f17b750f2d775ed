//! Quotas: how many pages a namespace may keep cached, so that no tenant drives out the others.
//!
//! Only namespaces with a quota pay for it: each has its own list of what is evicted next, beside
//! the one of all, so that making room for it takes its own oldest pages and nobody else's.

use crate::events::EventLog;
use crate::pool::PagePool;
use crate::recency::{Links, Recency};
use crate::tree::{NIL, Tree};
use crate::{PrefixCache, Result};

/// The pages a namespace keeps cached, and how many it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Pages cached now, evictable and protected.
    pub pages: usize,
    /// Pages allowed.
    pub limit: usize,
}

/// A quota and the order in which its namespace's pages go.
#[derive(Debug)]
pub(crate) struct Limited {
    pub(crate) quota: Quota,
    pub(crate) recency: Recency,
}

/// Quotas by the index of their namespace.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    slots: Vec<Option<Box<Limited>>>,
    /// By node: its place in its namespace's list; used only in namespaces with a quota.
    links: Vec<Links>,
    count: usize,
}

impl Quotas {
    /// Whether there is any: without one no operation looks further.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn get(&self, namespace: u32) -> Option<&Limited> {
        self.slots.get(namespace as usize)?.as_deref()
    }

    /// How many pages the namespace may add now.
    pub(crate) fn room(&self, namespace: u32) -> usize {
        self.get(namespace).map_or(usize::MAX, |limited| {
            limited.quota.limit.saturating_sub(limited.quota.pages)
        })
    }

    pub(crate) fn victim(&self, namespace: u32) -> u32 {
        self.get(namespace)
            .map_or(NIL, |limited| limited.recency.victim())
    }

    pub(crate) fn count_added(&mut self, namespace: u32, pages: usize) {
        if let Some((limited, _)) = self.limited(namespace) {
            limited.quota.pages += pages;
        }
    }

    pub(crate) fn count_removed(&mut self, namespace: u32, pages: usize) {
        if let Some((limited, _)) = self.limited(namespace) {
            limited.quota.pages -= pages;
        }
    }

    pub(crate) fn link(&mut self, namespace: u32, class: u8, node: u32) {
        if let Some((limited, links)) = self.limited(namespace) {
            if links.len() <= node as usize {
                links.resize(node as usize + 1, Links::default());
            }
            limited.recency.push(links, class, node);
        }
    }

    pub(crate) fn unlink(&mut self, namespace: u32, class: u8, node: u32) {
        if let Some((limited, links)) = self.limited(namespace) {
            let own = links[node as usize];
            limited.recency.remove(links, class, own);
        }
    }

    /// For `check`: whether the namespace's lists hold what `expected` says, in that order.
    pub(crate) fn is_listed(&self, namespace: u32, expected: &[(u8, Vec<u32>)]) -> bool {
        self.get(namespace).is_some_and(|limited| {
            let longest = self.links.len() + 1;
            let mut lists = limited.recency.lists(&self.links, longest);
            expected.iter().all(|(class, nodes)| {
                lists
                    .next()
                    .is_some_and(|list| list == (*class, nodes.clone()))
                    && limited.recency.is_linked(&self.links, *class, nodes)
            })
        })
    }

    fn limited(&mut self, namespace: u32) -> Option<(&mut Limited, &mut Vec<Links>)> {
        let limited = self.slots.get_mut(namespace as usize)?.as_deref_mut()?;
        Some((limited, &mut self.links))
    }

    fn set(&mut self, namespace: u32, limited: Option<Limited>) {
        let index = namespace as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let before = self.slots[index].is_some();
        self.count = self.count + usize::from(limited.is_some()) - usize::from(before);
        self.slots[index] = limited.map(Box::new);
    }

    fn set_limit(&mut self, namespace: u32, limit: usize) {
        if let Some((limited, _)) = self.limited(namespace) {
            limited.quota.limit = limit;
        }
    }
}

impl Tree {
    /// Starts to count the pages of `namespace` and to list them in the order of the lists of all.
    fn start_quota(&mut self, namespace: u32, limit: usize) {
        let mine = |node: u32| self.nodes[node].namespace == namespace;
        let live = self.nodes.live().filter(|&(index, _)| mine(index));
        let pages = live.map(|(_, node)| node.len as usize).sum();
        let everything = self.recency.lists(&self.nodes, self.nodes.len());
        let order: Vec<(u8, Vec<u32>)> = everything
            .map(|(class, list)| (class, list.into_iter().filter(|&n| mine(n)).collect()))
            .collect();
        self.quotas.set(
            namespace,
            Some(Limited {
                quota: Quota { pages, limit },
                recency: Recency::new(),
            }),
        );
        for (class, list) in order {
            for node in list {
                self.quotas.link(namespace, class, node);
            }
        }
    }

    /// Gives up to `max` of the namespace's own evictable pages to the pool; returns how many.
    pub(crate) fn trim_own(
        &mut self,
        namespace: u32,
        max: usize,
        pool: &mut PagePool,
        mut log: Option<&mut EventLog>,
    ) -> usize {
        let mut freed = 0;
        while freed < max {
            let victim = self.quotas.victim(namespace);
            let give = |tail: &[u32]| pool.give_up(tail);
            match self.trim(victim, max - freed, give, log.as_deref_mut()) {
                0 => break,
                pages => freed += pages,
            }
        }
        freed
    }
}

impl PrefixCache {
    /// Lets `namespace` keep at most `pages` pages cached; `None` lifts the limit. Returns how
    /// many of its evictable pages went because they were over it.
    ///
    /// From then on `insert` makes room among the namespace's own pages, by the eviction policy,
    /// and publishes only what fits: [`crate::Inserted::held`] says how far it came, and the rest
    /// stays the caller's. Protected pages are never taken, so a lower limit may hold only later.
    /// The namespace is remembered, pages or not, until the limit is lifted.
    ///
    /// O(cached nodes) when the first limit is set, later O(pages evicted).
    ///
    /// ```
    /// # use rampway_prefix_cache::{PrefixCache, Quota};
    /// let mut cache = PrefixCache::new(32, 4)?;
    /// cache.set_quota(b"guest", Some(2));
    /// for text in [[1; 8], [2; 8]] {
    ///     let found = cache.match_lock(b"guest", &text);
    ///     let mut row = [0; 2];
    ///     assert!(cache.alloc(&mut row));
    ///     cache.insert(found.handle, &text, &row)?;
    ///     cache.release(found.handle, None)?;
    /// }
    /// // The second text took the place of the first although 27 pages were free.
    /// assert_eq!(cache.quota(b"guest"), Some(Quota { pages: 2, limit: 2 }));
    /// assert_eq!((cache.peek(b"guest", &[1; 8]), cache.peek(b"guest", &[2; 8])), (0, 8));
    /// # Ok::<(), rampway_prefix_cache::Error>(())
    /// ```
    pub fn set_quota(&mut self, namespace: &[u8], pages: Option<usize>) -> usize {
        let root = self.tree.lock_root(namespace);
        let index = self.tree.nodes[root].namespace;
        let freed = match pages {
            None => {
                self.tree.quotas.set(index, None);
                0
            }
            Some(limit) => {
                match self.tree.quotas.get(index) {
                    None => self.tree.start_quota(index, limit),
                    Some(_) => self.tree.quotas.set_limit(index, limit),
                }
                self.shrink_own(index, 0)
            }
        };
        self.tree.unlock_path(root);
        freed
    }

    /// The quota of `namespace` and what it keeps; `None` without one. O(length of the name).
    ///
    /// ```
    /// # use rampway_prefix_cache::PrefixCache;
    /// assert_eq!(PrefixCache::new(32, 4)?.quota(b"guest"), None);
    /// # Ok::<(), rampway_prefix_cache::Error>(())
    /// ```
    #[must_use]
    pub fn quota(&self, namespace: &[u8]) -> Option<Quota> {
        let root = self.tree.find_root(namespace)?;
        let limited = self.tree.quotas.get(self.tree.nodes[root].namespace)?;
        Some(limited.quota)
    }

    /// Makes room for `wanted` more pages below the locked `node`; returns how many may be added.
    pub(crate) fn room_for(&mut self, node: u32, wanted: usize) -> usize {
        if self.tree.quotas.is_empty() {
            return wanted;
        }
        let namespace = self.tree.nodes[node].namespace;
        self.shrink_own(namespace, wanted);
        wanted.min(self.tree.quotas.room(namespace))
    }

    /// Evicts of the namespace's pages what `more` would bring over its quota; returns how many.
    fn shrink_own(&mut self, namespace: u32, more: usize) -> usize {
        let Some(Limited { quota, .. }) = self.tree.quotas.get(namespace) else {
            return 0;
        };
        let over = (quota.pages + more).saturating_sub(quota.limit);
        let (tree, log) = (&mut self.tree, self.events.as_mut());
        let freed = tree.trim_own(namespace, over, &mut self.pool, log);
        self.counters.evicted_pages += freed as u64;
        freed
    }

    /// For `check`: quotas count their namespace's pages and list its unlocked nodes in order.
    pub(crate) fn check_quotas(&self) -> Result<()> {
        let tree = &self.tree;
        for namespace in tree.namespaces.iter() {
            let index = tree.nodes[namespace.root].namespace;
            let Some(limited) = tree.quotas.get(index) else {
                continue;
            };
            let mine = |node: &u32| tree.nodes[*node].namespace == index;
            let live = tree.nodes.live().filter(|(node, _)| mine(node));
            let pages: usize = live.map(|(_, node)| node.len as usize).sum();
            let everything = tree.recency.lists(&tree.nodes, tree.nodes.len() + 1);
            let order: Vec<(u8, Vec<u32>)> = everything
                .map(|(class, list)| (class, list.into_iter().filter(mine).collect()))
                .collect();
            if pages != limited.quota.pages || !tree.quotas.is_listed(index, &order) {
                let name = &namespace.name;
                return Err(crate::Error::Corrupt(format!(
                    "quota of namespace {name:?} miscounts or is out of order"
                )));
            }
        }
        Ok(())
    }
}
