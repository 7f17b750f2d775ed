//! Which node is evicted next: lists of **all** unlocked nodes, one a class, oldest to youngest.
//!
//! The victim is the oldest node of the lowest class that has one. It is always a leaf, because
//! of two facts that hold for every unlocked parent and child:
//! 1. The parent's class is at least the child's: hits and priorities are raised along whole
//!    paths from the root, and a new child starts no higher than its parent.
//! 2. In the same class the parent is younger: a release links its path from the leaf to the
//!    root, and every lock on a node is also a lock on its ancestors.
//!
//! A child of the victim would have its class by 1 and be older by 2, so the victim would not be
//! the oldest. Nothing is ever searched or sorted.

use crate::slab::Slab;
use crate::tree::{NIL, Node};

/// The neighbours of a node in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    older: u32,
    younger: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            older: NIL,
            younger: NIL,
        }
    }
}

/// Where lists keep the links of a node.
pub(crate) trait LinkStore {
    fn links(&self, node: u32) -> Links;
    fn links_mut(&mut self, node: u32) -> &mut Links;
}

impl LinkStore for Slab<Node> {
    #[inline]
    fn links(&self, node: u32) -> Links {
        self[node].links
    }

    #[inline]
    fn links_mut(&mut self, node: u32) -> &mut Links {
        &mut self[node].links
    }
}

impl LinkStore for Vec<Links> {
    fn links(&self, node: u32) -> Links {
        self[node as usize]
    }

    fn links_mut(&mut self, node: u32) -> &mut Links {
        &mut self[node as usize]
    }
}

/// What is evicted first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// What was used longest ago.
    #[default]
    Lru,
    /// What `match_lock` found least often (63 and more are equal); among these the oldest.
    Lfu,
    /// What `match_lock` has never found, oldest first; then the rest, oldest first. One pass
    /// over many new texts cannot drive out what is in use.
    Slru,
    /// The lowest priority, see [`crate::PrefixCache::prioritize`]; among these the oldest.
    Priority,
}

/// The highest class, so that one word says which classes have a node.
pub(crate) const TOP: u8 = 63;

impl Policy {
    #[inline]
    pub(crate) fn class(self, node: &Node) -> u8 {
        // Apart, so that the usual policy costs a comparison and no jump table.
        if self == Self::Lru {
            return 0;
        }
        match self {
            Self::Lru => 0,
            Self::Lfu => node.hits,
            Self::Slru => node.hits.min(1),
            Self::Priority => node.priority,
        }
    }

    /// Whether pages new to the cache, inserted at `priority`, may join `node` without ever
    /// being evicted in another order than as a node of their own.
    pub(crate) fn may_join(self, node: &Node, priority: u8) -> bool {
        match self {
            Self::Lru => true,
            Self::Lfu | Self::Slru => node.hits == 0,
            Self::Priority => node.priority == priority,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    oldest: u32,
    youngest: u32,
}

/// Doubly linked lists that run through the nodes. All operations are O(1).
#[derive(Debug)]
pub(crate) struct Recency {
    /// One bit for each class that has a node.
    occupied: u64,
    ends: [Ends; TOP as usize + 1],
}

impl Recency {
    pub(crate) const fn new() -> Self {
        let none = Ends {
            oldest: NIL,
            youngest: NIL,
        };
        Self {
            occupied: 0,
            ends: [none; TOP as usize + 1],
        }
    }

    /// The node to evict next, or `NIL`.
    pub(crate) const fn victim(&self) -> u32 {
        match self.occupied {
            0 => NIL,
            occupied => self.ends[occupied.trailing_zeros() as usize].oldest,
        }
    }

    /// Links `node` as the youngest of `class`.
    #[inline]
    pub(crate) fn push(&mut self, nodes: &mut impl LinkStore, class: u8, node: u32) {
        let ends = &mut self.ends[usize::from(class & TOP)];
        let older = std::mem::replace(&mut ends.youngest, node);
        let younger = NIL;
        *nodes.links_mut(node) = Links { older, younger };
        if older == NIL {
            ends.oldest = node;
            self.occupied |= 1 << class;
        } else {
            nodes.links_mut(older).younger = node;
        }
    }

    /// Unlinks the node that has these links in the list of `class`.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut impl LinkStore, class: u8, links: Links) {
        let ends = &mut self.ends[usize::from(class & TOP)];
        let Links { older, younger } = links;
        if younger == NIL {
            ends.youngest = older;
        } else {
            nodes.links_mut(younger).older = older;
        }
        if older != NIL {
            nodes.links_mut(older).younger = younger;
            return;
        }
        ends.oldest = younger;
        if younger == NIL {
            self.occupied &= !(1 << class);
        }
    }

    /// For `check`: each class with its list, oldest first; stops at `limit` nodes.
    pub(crate) fn lists<'n>(
        &'n self,
        nodes: &'n impl LinkStore,
        limit: usize,
    ) -> impl Iterator<Item = (u8, Vec<u32>)> + 'n {
        (0..=TOP).map(move |class| {
            let some = |node: u32| (node != NIL).then_some(node);
            let first = some(self.ends[class as usize].oldest);
            let list = std::iter::successors(first, |&node| some(nodes.links(node).younger));
            (class, list.take(limit).collect())
        })
    }

    /// For `check`: whether the list of `class`, which holds these nodes, is linked both ways.
    pub(crate) fn is_linked(&self, nodes: &impl LinkStore, class: u8, list: &[u32]) -> bool {
        let ends = self.ends[class as usize];
        let older = std::iter::once(&NIL).chain(list);
        (self.occupied >> class & 1 == 1) != list.is_empty()
            && ends.youngest == list.last().copied().unwrap_or(NIL)
            && list
                .iter()
                .zip(older)
                .all(|(&node, &older)| nodes.links(node).older == older)
    }
}
