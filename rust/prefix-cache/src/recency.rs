//! Which node is evicted next: a list of **all** unlocked nodes, oldest to youngest.
//!
//! A release links its path from the leaf to the root, and every lock on a node is also a lock on
//! its ancestors. So a parent was always linked after its children, is younger than they are, and
//! the oldest node is a leaf: eviction never has to search for one.

use crate::slab::Slab;
use crate::tree::{NIL, Node};

/// The two ends of a doubly linked list that runs through the nodes. All operations are O(1).
#[derive(Debug)]
pub(crate) struct Recency {
    pub(crate) oldest: u32,
    pub(crate) youngest: u32,
}

impl Recency {
    pub(crate) const fn new() -> Self {
        Self {
            oldest: NIL,
            youngest: NIL,
        }
    }

    /// Links `node` as the youngest.
    #[inline]
    pub(crate) fn push(&mut self, nodes: &mut Slab<Node>, node: u32) {
        let older = std::mem::replace(&mut self.youngest, node);
        nodes[node].older = older;
        nodes[node].younger = NIL;
        match older {
            NIL => self.oldest = node,
            _ => nodes[older].younger = node,
        }
    }

    /// Unlinks `node`.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut Slab<Node>, node: u32) {
        let Node { older, younger, .. } = nodes[node];
        match older {
            NIL => self.oldest = younger,
            _ => nodes[older].younger = younger,
        }
        match younger {
            NIL => self.youngest = older,
            _ => nodes[younger].older = older,
        }
    }
}
