//! Runs one case of the speed table a number of times: `cases NAME ROUNDS`.
//!
//! Prints nanoseconds a round, of the best of fifty batches. Under `valgrind --tool=callgrind` the difference between two
//! numbers of rounds is the instructions of a round, free of setup and noise.

use std::hint::black_box;
use std::time::Instant;

use rampway_prefix_cache::{Match, PrefixCache};

const PAGE: usize = 16;
const NS: &[u8] = &[7; 32];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let rounds: u32 = arguments
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1000);
    let mut case = match name.as_str() {
        "hit-1" => hit(8192, 1),
        "hit-16" => hit(8192, 16),
        "hit-512" => hit(8192, 512),
        "hit-long" => hit(131_072, 1),
        "miss" => miss(10),
        "miss-wide" => miss(100_000),
        "evict-1k" => evict(1000),
        "evict-40k" => evict(40_000),
        "evict-1m" => evict(1_000_000),
        "insert" => insert(),
        _ => {
            eprintln!(
                "case is unknown: need hit-1, hit-16, hit-512, hit-long, miss, miss-wide, \
                 evict-1k, evict-40k, evict-1m or insert"
            );
            std::process::exit(2);
        }
    };
    let batch = (rounds / 50).max(1);
    let mut best = u128::MAX;
    for first in (0..rounds).step_by(batch as usize) {
        let start = Instant::now();
        for round in first..first + batch {
            case(round);
        }
        best = best.min(start.elapsed().as_nanos() / u128::from(batch));
    }
    println!("{name}: {best} ns a round in the best batch");
}

fn text(seed: u32, n: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 15
    };
    (0..n).map(next).collect()
}

fn publish(cache: &mut PrefixCache, tokens: &[u32], row: &mut [u32]) {
    let Match { handle, .. } = cache.match_lock(NS, tokens);
    let row = &mut row[..tokens.len() / PAGE];
    let held = cache
        .fill_pages(handle, row)
        .expect("the row is long enough");
    assert!(cache.alloc(&mut row[held..]));
    cache.insert(handle, tokens, row).expect("pages are ours");
    cache.release(handle, None).expect("the handle is live");
}

/// Match, lock, fill and release a text that is cached as `nodes` nodes.
fn hit(n: usize, nodes: usize) -> Box<dyn FnMut(u32)> {
    let mut cache = PrefixCache::new(n / PAGE + 2, PAGE).expect("sizes are right");
    let tokens = text(1, n);
    let mut row = vec![0; n / PAGE];
    publish(&mut cache, &tokens, &mut row);
    for part in 1..nodes {
        let cut = cache.match_lock(NS, &tokens[..part * (n / nodes)]);
        cache.release(cut.handle, None).expect("the handle is live");
    }
    Box::new(move |_| {
        let found = cache.match_lock(NS, black_box(&tokens));
        cache.fill_pages(found.handle, &mut row).expect("it fits");
        cache.release(found.handle, None).expect("it is live");
    })
}

/// Look for a text whose first page is not among `children` others.
fn miss(children: u32) -> Box<dyn FnMut(u32)> {
    let mut cache = PrefixCache::new(children as usize + 2, PAGE).expect("sizes are right");
    let mut row = [0; 1];
    for child in 0..children {
        publish(&mut cache, &text(child, PAGE), &mut row);
    }
    let tokens = vec![u32::MAX; 8192];
    Box::new(move |_| {
        let found = cache.match_lock(NS, black_box(&tokens));
        cache.release(found.handle, None).expect("it is live");
    })
}

/// Evict 64 tokens where many leaves of one page are cached, and put four others there.
fn evict(leaves: u32) -> Box<dyn FnMut(u32)> {
    let mut cache = PrefixCache::new(leaves as usize + 1, PAGE).expect("sizes are right");
    let mut row = [0; 1];
    let mut leaf = [1; PAGE];
    for i in 0..leaves {
        leaf[0] = i;
        publish(&mut cache, &leaf, &mut row);
    }
    let mut next = leaves;
    Box::new(move |_| {
        assert_eq!(black_box(cache.evict(4)), 4);
        for _ in 0..4 {
            leaf[0] = next;
            next = (next + 1) % (1 << 30);
            publish(&mut cache, &leaf, &mut row);
        }
    })
}

/// Publish 8,192 new tokens in a full cache.
fn insert() -> Box<dyn FnMut(u32)> {
    let mut cache = PrefixCache::new(10 * 512 + 1, PAGE).expect("sizes are right");
    let mut row = [0; 512];
    let mut tokens = text(1, 8192);
    Box::new(move |round| {
        tokens[0] = round;
        publish(&mut cache, &tokens, &mut row);
    })
}
