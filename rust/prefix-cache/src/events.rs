//! What routers are told: which blocks are cached. Off until asked for, and then free of charge
//! for everything but `insert` and eviction.
//!
//! A block is a page, named by its hash chain: SHA-256 over the parent's hash and the tokens, so
//! a name says the whole prefix; the first parent is a hash of the namespace, so two tenants
//! never share a name.

use std::collections::{HashSet, VecDeque};

use sha2::{Digest, Sha256};

use crate::tree::Tree;
use crate::{PrefixCache, TokenId};

/// A change of what is cached, in the order it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `BlockStored`: a chain of blocks was published.
    Stored {
        /// The namespace they belong to.
        namespace: Box<[u8]>,
        /// The block before the first; `None` at the start of a text.
        parent: Option<u64>,
        /// One name a block, in order.
        blocks: Vec<u64>,
        /// The tokens of all blocks.
        tokens: Vec<u32>,
    },
    /// `BlockRemoved`: blocks were evicted.
    Removed {
        /// Their names, in the order they went.
        blocks: Vec<u64>,
    },
    /// `AllBlocksCleared`: nothing that was told before is cached any more.
    Cleared,
}

/// What [`PrefixCache::drain_events`] returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events since the last drain.
    pub events: Vec<Event>,
    /// Events that found no room. When not 0, call [`PrefixCache::enable_events`] again: it
    /// tells everything anew.
    pub lost: u64,
}

type BlockHash = [u8; 32];

/// The queue of events and, by page, the hash of what is cached in it.
#[derive(Debug)]
pub(crate) struct EventLog {
    hashes: Vec<BlockHash>,
    queue: VecDeque<Event>,
    capacity: usize,
    lost: u64,
}

impl EventLog {
    fn new(num_pages: usize, capacity: usize) -> Self {
        Self {
            hashes: vec![[0; 32]; num_pages],
            queue: VecDeque::new(),
            capacity,
            lost: 0,
        }
    }

    /// Tells that `pages` with `tokens` were published after the page `parent`.
    pub(crate) fn stored<T: TokenId>(
        &mut self,
        namespace: &[u8],
        parent: Option<u32>,
        pages: &[u32],
        tokens: &[T],
    ) {
        let mut chain = parent.map_or_else(|| seed(namespace), |page| self.hashes[page as usize]);
        let parent = parent.map(|_| name(&chain));
        let page_size = tokens.len() / pages.len();
        let mut blocks = Vec::with_capacity(pages.len());
        for (&page, tokens) in pages.iter().zip(tokens.chunks_exact(page_size)) {
            chain = link(&chain, tokens);
            self.hashes[page as usize] = chain;
            blocks.push(name(&chain));
        }
        self.push(Event::Stored {
            namespace: namespace.into(),
            parent,
            blocks,
            tokens: tokens.iter().map(|token| token.id()).collect(),
        });
    }

    /// Tells that `pages`, the tail of a chain, were evicted; the last one went first.
    pub(crate) fn removed(&mut self, pages: &[u32]) {
        let names = pages.iter().rev();
        let names = names.map(|&page| name(&self.hashes[page as usize]));
        if let Some(Event::Removed { blocks }) = self.queue.back_mut() {
            blocks.extend(names);
            return;
        }
        let blocks = names.collect();
        self.push(Event::Removed { blocks });
    }

    pub(crate) fn push(&mut self, event: Event) {
        if self.queue.len() < self.capacity {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    /// Tells of every node, parents first. O(cached tokens).
    fn snapshot(&mut self, tree: &Tree) {
        let mut told = HashSet::new();
        for (node, _) in tree.nodes.live() {
            let path: Vec<u32> = tree
                .path_up(node)
                .take_while(|n| !told.contains(n))
                .collect();
            for node in path.into_iter().rev() {
                told.insert(node);
                let pages = tree.pages(node);
                if !pages.is_empty() {
                    let parent = tree.pages(tree.nodes[node].parent).last().copied();
                    self.stored(tree.namespace_of(node), parent, pages, tree.tokens(node));
                }
            }
        }
    }
}

fn seed(namespace: &[u8]) -> BlockHash {
    let length = namespace.len() as u64;
    Sha256::new()
        .chain_update(b"rampway-namespace")
        .chain_update(length.to_le_bytes())
        .chain_update(namespace)
        .finalize()
        .into()
}

fn link<T: TokenId>(parent: &BlockHash, tokens: &[T]) -> BlockHash {
    let mut hash = Sha256::new().chain_update(parent);
    for token in tokens {
        hash.update(token.id().to_le_bytes());
    }
    hash.finalize().into()
}

fn name(hash: &BlockHash) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(first)
}

impl PrefixCache {
    /// Starts to record events, keeping up to `capacity` of them until they are drained; or
    /// starts anew. The first events tell what is cached now, after an [`Event::Cleared`].
    ///
    /// O(cached tokens). From then on `insert` hashes what it publishes, about 70 ns a page.
    ///
    /// ```
    /// # use rampway_prefix_cache::{Event, PrefixCache};
    /// # let mut cache = PrefixCache::new(32, 4)?;
    /// cache.enable_events(1000);
    /// # let found = cache.match_lock(b"", &[1, 2, 3, 4]);
    /// # let mut row = [0; 1];
    /// # assert!(cache.alloc(&mut row));
    /// cache.insert(found.handle, &[1, 2, 3, 4], &row)?;
    /// let told = cache.drain_events();
    /// assert!(matches!(told.events[..], [Event::Cleared, Event::Stored { .. }]));
    /// # Ok::<(), rampway_prefix_cache::Error>(())
    /// ```
    pub fn enable_events(&mut self, capacity: usize) {
        let mut log = EventLog::new(self.pool.total(), capacity);
        log.push(Event::Cleared);
        log.snapshot(&self.tree);
        self.events = Some(log);
    }

    /// Stops recording and forgets what was not drained. O(events).
    pub fn disable_events(&mut self) {
        self.events = None;
    }

    /// Takes the events since the last call, oldest first; nothing when they are off. O(events).
    pub fn drain_events(&mut self) -> Drained {
        self.events
            .as_mut()
            .map_or_else(Drained::default, |log| Drained {
                events: std::mem::take(&mut log.queue).into(),
                lost: std::mem::take(&mut log.lost),
            })
    }
}
