//! One table for the children of all nodes, keyed by parent and a keyed hash of the first page.
//!
//! Tokens are chosen by clients, so the hash has a secret key; and it is never trusted: the
//! caller compares the page itself.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;
use hashbrown::HashTable;

/// What a node remembers of its key, so that the table can grow without reading tokens.
pub(crate) type KeyHash = u32;

#[derive(Debug)]
pub(crate) struct ChildTable {
    nodes: HashTable<u32>,
    secret: RandomState,
}

impl ChildTable {
    pub(crate) fn new() -> Self {
        Self {
            nodes: HashTable::new(),
            secret: RandomState::new(),
        }
    }

    /// Hashes a first page below `parent`.
    #[inline]
    pub(crate) fn hash(&self, parent: u32, first_page: &[u32]) -> KeyHash {
        let mut hasher = self.secret.build_hasher();
        hasher.write_u32(parent);
        hasher.write(bytemuck::cast_slice(first_page));
        fold(hasher.finish())
    }

    /// Hashes a namespace.
    #[inline]
    pub(crate) fn hash_bytes(&self, bytes: &[u8]) -> KeyHash {
        fold(self.secret.hash_one(bytes))
    }

    /// Finds the node with this hash for which `same` holds. O(1) at any fan-out.
    #[inline]
    pub(crate) fn find(&self, hash: KeyHash, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        self.nodes.find(spread(hash), |&node| same(node)).copied()
    }

    /// Adds `node`; `hash_of` gives the hash of any node in the table.
    pub(crate) fn add(&mut self, node: u32, hash_of: impl Fn(u32) -> KeyHash) {
        self.nodes
            .insert_unique(spread(hash_of(node)), node, |&node| spread(hash_of(node)));
    }

    /// Puts `new` in the place of `old`, which has the same key.
    pub(crate) fn replace(&mut self, hash: KeyHash, old: u32, new: u32) {
        if let Some(entry) = self.nodes.find_mut(spread(hash), |&node| node == old) {
            *entry = new;
        }
    }

    /// Removes `node`; gives memory back when the table is mostly empty.
    pub(crate) fn remove(&mut self, hash: KeyHash, node: u32, hash_of: impl Fn(u32) -> KeyHash) {
        const SMALL: usize = 1024;
        if let Ok(entry) = self.nodes.find_entry(spread(hash), |&n| n == node) {
            entry.remove();
        }
        if self.nodes.capacity() > SMALL && self.nodes.len() < self.nodes.capacity() / 8 {
            let keep = self.nodes.len() * 2;
            self.nodes.shrink_to(keep, |&node| spread(hash_of(node)));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[inline]
fn fold(hash: u64) -> KeyHash {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
    let folded = (hash ^ (hash >> 32)) as u32;
    folded
}

/// hashbrown takes its tag from the top bits and its bucket from the bottom ones.
#[inline]
pub(crate) fn spread(hash: KeyHash) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
