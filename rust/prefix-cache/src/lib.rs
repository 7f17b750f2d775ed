//! Prefix cache of an LLM serving engine: which pages of the KV cache hold which tokens.
//!
//! One [`PrefixCache`] owns both the radix tree over token pages and the allocator of those
//! pages, so a page is always owned exactly once and "allocate, evicting if needed" is one
//! operation. It knows nothing of requests, models, threads or Python.
//!
//! ```
//! use rampway_prefix_cache::PrefixCache;
//!
//! let mut cache = PrefixCache::new(64, 4)?; // 64 pages of 4 tokens
//! let prompt: Vec<u32> = (0..10).collect();
//!
//! // The first request finds nothing, computes, and publishes its two full pages.
//! let first = cache.match_lock(b"tenant", &prompt);
//! assert_eq!(first.matched_tokens, 0);
//! let mut row = [0; 3];
//! assert!(cache.alloc(&mut row));
//! cache.insert(first.handle, &prompt, &row)?;
//! cache.free(&row[2..], None)?; // the last, partial page stayed ours
//! cache.release(first.handle, None)?;
//!
//! // The next one reuses them.
//! let next = cache.match_lock(b"tenant", &prompt);
//! assert_eq!(next.matched_tokens, 8);
//! let mut reused = [0; 3];
//! assert_eq!(cache.fill_pages(next.handle, &mut reused)?, 2);
//! assert_eq!(reused[..2], row[..2]);
//! # cache.check()?;
//! # Ok::<(), rampway_prefix_cache::Error>(())
//! ```
//!
//! # Reading order
//! `cache.rs` and `release.rs` (the operations), `tree.rs` (walk, split, grow, trim), then what they stand on:
//! `pool.rs` (who owns a page), `segment.rs` (where tokens lie), `table.rs` (child lookup),
//! `recency.rs` (what is evicted next), `handles.rs`, `pins.rs`, `quotas.rs`, `events.rs`,
//! `namespaces.rs`, `waiting.rs`.

mod cache;
mod check;
mod compare;
mod error;
mod events;
mod handles;
mod namespaces;
mod pins;
mod pool;
mod quotas;
mod recency;
mod release;
mod segment;
mod slab;
mod stats;
mod table;
mod token;
mod tree;
mod waiting;

pub use cache::{Inserted, Match, PrefixCache};
pub use error::{Error, Result};
pub use events::{Drained, Event};
pub use pins::Pin;
pub use pool::Owner;
pub use quotas::Quota;
pub use recency::Policy;
pub use stats::Stats;
pub use token::TokenId;

/// The largest token id and page id: both must fit an `i32` row of the engine.
pub const MAX_ID: u32 = i32::MAX as u32;
