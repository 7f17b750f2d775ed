//! One table for the children of all nodes, keyed by parent and a keyed hash of the first page.
//!
//! Tokens are chosen by clients, so the hash must not be steerable. NH (the universal hash inside
//! UMAC) is proven: for two different keys, whoever chose them without knowing the secret makes
//! them collide with probability 2^-32. And it is never trusted: the page itself is compared.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// What a node remembers of its key, so that the table can grow without reading tokens.
pub(crate) type KeyHash = u32;

#[derive(Debug)]
pub(crate) struct ChildTable {
    nodes: HashTable<u32>,
    /// A word for the parent, one for the odd token of a page of one, one for each other token.
    secret: Box<[u32]>,
    /// Seeded by the operating system; hashes namespaces, and made `secret`.
    names: RandomState,
}

impl ChildTable {
    pub(crate) fn new(page_size: usize) -> Self {
        let names = RandomState::new();
        let words = 2 + page_size / 2 * 2;
        Self {
            nodes: HashTable::new(),
            secret: (0..words).map(|i| fold(names.hash_one(i))).collect(),
            names,
        }
    }

    /// Hashes a first page below `parent`. The words are summed in pairs of products, which do
    /// not wait for each other.
    #[inline]
    pub(crate) fn hash(&self, parent: u32, first_page: &[u32]) -> KeyHash {
        let (head, secret) = self.secret.split_at(2);
        let pairs = first_page.chunks_exact(2);
        let odd = pairs.remainder().first().copied().unwrap_or(0);
        let mut sum = product(&[parent, odd], head);
        for (pair, secret) in pairs.zip(secret.chunks_exact(2)) {
            sum = sum.wrapping_add(product(pair, secret));
        }
        mix(sum)
    }

    /// Hashes a namespace.
    #[inline]
    pub(crate) fn hash_bytes(&self, bytes: &[u8]) -> KeyHash {
        fold(self.names.hash_one(bytes))
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
fn product(words: &[u32], secret: &[u32]) -> u64 {
    let factor = |i: usize| u64::from(words[i].wrapping_add(secret[i]));
    factor(0) * factor(1)
}

/// Spreads the sum's bits over a word; one to one before the fold, so nothing of the proof is
/// lost but what 32 bits cannot hold.
#[inline]
fn mix(sum: u64) -> KeyHash {
    let mixed = (sum ^ (sum >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    fold(mixed)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::ChildTable;

    #[test]
    fn given_similar_keys_when_hashed_then_they_spread_as_if_random() {
        for page_size in [1, 2, 16] {
            let table = ChildTable::new(page_size);
            let mut page = vec![0; page_size];
            let mut seen = HashSet::new();
            for parent in 0..64 {
                for token in 0..512 {
                    page[page_size - 1] = token;
                    seen.insert(table.hash(parent, &page));
                }
            }
            // 2^15 keys in 2^32 values: an eighth of a collision is expected.
            assert!(seen.len() + 4 > 64 * 512, "{} of {}", seen.len(), 64 * 512);
        }
    }

    #[test]
    fn given_two_caches_when_one_key_is_hashed_then_their_secrets_differ() {
        let hashes: HashSet<u32> = (0..4)
            .map(|_| ChildTable::new(16).hash(1, &[7; 16]))
            .collect();
        assert!(hashes.len() > 1);
    }
}
