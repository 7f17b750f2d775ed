//! One table for the children of all nodes, keyed by parent and a keyed hash of the first page.
//!
//! Tokens are chosen by clients, so the hash must not be steerable. NH (the universal hash inside
//! UMAC) is proven: for two different keys, whoever chose them without knowing the secret makes
//! them collide with probability 2^-32. And it is never trusted: the page itself is compared.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::TokenId;

/// What a node remembers of its key, so that the table can grow without reading tokens.
pub(crate) type KeyHash = u32;

/// Tokens hashed at once: two vector registers of the plainest x86-64 and of ARM.
const BLOCK: usize = 8;

#[derive(Debug)]
pub(crate) struct ChildTable {
    nodes: HashTable<u32>,
    /// Added to and multiplied with the parent.
    parent_secret: (u32, u32),
    /// A word for each token of a page, filled up to a block.
    secret: Box<[u32]>,
    /// Seeded by the operating system; hashes namespaces, and made the secrets.
    names: RandomState,
}

impl ChildTable {
    pub(crate) fn new(page_size: usize) -> Self {
        let names = RandomState::new();
        let words = page_size.next_multiple_of(BLOCK);
        let word = |i: usize| fold(names.hash_one(i));
        Self {
            nodes: HashTable::new(),
            parent_secret: (word(words), word(words + 1)),
            secret: (0..words).map(word).collect(),
            names,
        }
    }

    /// Lets every key collide with every other: what an attacker who knew the secret could do.
    #[cfg(test)]
    pub(crate) fn forget_secret(&mut self) {
        self.parent_secret = (0, 0);
        self.secret.fill(0);
    }

    /// Hashes a first page below `parent`: the sum of the products of pairs of words. The parent
    /// is known last, on a walk, and only its one product waits for it.
    #[inline]
    pub(crate) fn hash<T: TokenId>(&self, parent: u32, first_page: &[T]) -> KeyHash {
        let (add, factor) = self.parent_secret;
        let above = u64::from(parent.wrapping_add(add)) * u64::from(factor);
        let sum = if first_page.len() < BLOCK {
            self.short_sum(first_page)
        } else {
            let blocks = first_page.chunks_exact(BLOCK);
            let pairs = blocks.zip(self.secret.chunks_exact(BLOCK));
            pairs.fold(0, |sum: u64, (ids, secret)| {
                sum.wrapping_add(block_sum(|i| ids[i].id(), secret))
            })
        };
        mix(sum.wrapping_add(above))
    }

    /// A page smaller than a block, filled up with zeros.
    #[inline(never)]
    fn short_sum<T: TokenId>(&self, page: &[T]) -> u64 {
        block_sum(|i| page.get(i).map_or(0, |token| token.id()), &self.secret)
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

/// Word `i` goes with word `i + 4`: so the multiplications of a vector need no shuffling.
#[inline]
fn block_sum(id: impl Fn(usize) -> u32, secret: &[u32]) -> u64 {
    const HALF: usize = BLOCK / 2;
    let factor = |i: usize| u64::from(id(i).wrapping_add(secret[i]));
    let products: [u64; HALF] = std::array::from_fn(|i| factor(i).wrapping_mul(factor(i + HALF)));
    let [a, b, c, d] = products;
    a.wrapping_add(b).wrapping_add(c.wrapping_add(d))
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
    #[cfg_attr(miri, ignore = "too much for an interpreter")]
    fn given_similar_keys_when_hashed_then_they_spread_as_if_random() {
        for page_size in [1, 2, 16] {
            let table = ChildTable::new(page_size);
            let mut page = vec![0_u32; page_size];
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
    #[cfg_attr(miri, ignore = "too much for an interpreter")]
    fn vllm_54727_given_keys_that_all_collide_when_looked_up_then_only_equal_tokens_match() {
        let mut cache = crate::PrefixCache::new(600, 2).expect("sizes are right");
        cache.tree.table.forget_secret();
        // Two tokens and zeros: with no secret their products are all zero, and so is the sum.
        for i in 0..200_u32 {
            let found = cache.match_lock(b"", &[i, 0, 0, i]);
            let mut row = [0; 2];
            let held = cache.fill_pages(found.handle, &mut row).expect("it fits");
            assert!(cache.alloc(&mut row[held..]));
            cache
                .insert(found.handle, &[i, 0, 0, i], &row)
                .expect("they are ours");
            cache.release(found.handle, None).expect("it is live");
        }
        for i in 0..200_u32 {
            assert_eq!(cache.peek(b"", &[i, 0, 0, i]), 4);
            assert_eq!(cache.peek(b"", &[i, 0, 0, i + 1]), 2);
        }
        cache.check().expect("nothing is broken");
        assert_eq!(cache.evict(100), 100);
        cache.check().expect("nothing is broken");
    }

    #[test]
    fn given_two_caches_when_one_key_is_hashed_then_their_secrets_differ() {
        let hashes: HashSet<u32> = (0..4)
            .map(|_| ChildTable::new(16).hash(1, &[7_u32; 16]))
            .collect();
        assert!(hashes.len() > 1);
    }
}
