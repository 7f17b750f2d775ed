//! Measures one case of the speed table: `cases NAME SAMPLES` prints one line of JSON.
//!
//! A sample times some operations in a row, less the clock's own cost; the line has the median of
//! the samples, in nanoseconds an operation, and of a bare comparison of as many tokens. What a
//! sample has to put right again is not timed. Under `valgrind --tool=callgrind` with
//! `--toggle-collect='cases::timed*'`, the instructions counted are those of
//! `samples * operations` operations and nothing else.

use std::hint::black_box;
use std::time::Instant;

use rampway_prefix_cache::{Match, PrefixCache};

const PAGE: usize = 16;
const NS: &[u8] = &[7; 32];
/// Pages of a leaf in the eviction cases: 96 tokens, as the peers are measured with.
const LEAF: usize = 6;

/// A case that is set up; `sample` returns nanoseconds an operation.
struct Case {
    tokens: usize,
    nodes: usize,
    operations: u32,
    sample: Box<dyn FnMut() -> f64>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let samples: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(200);
    let Some(mut case) = case(&name) else {
        eprintln!(
            "case is unknown: got {name:?}, need one of {}",
            NAMES.join(", ")
        );
        std::process::exit(2);
    };
    let times = (0..samples).map(|_| (case.sample)()).collect();
    println!(
        "{{\"case\": \"{name}\", \"tokens\": {}, \"nodes\": {}, \"operations\": {}, \
         \"samples\": {samples}, \"ns\": {:.1}, \"floor_ns\": {:.1}}}",
        case.tokens,
        case.nodes,
        case.operations,
        median(times),
        // Not when instructions are counted: it would be counted too.
        match arguments.next().as_deref() {
            Some("--no-floor") => 0.0,
            _ => floor(case.tokens),
        },
    );
}

const NAMES: [&str; 19] = [
    "hit-1",
    "hit-16",
    "hit-512",
    "hit-forked-512",
    "hit-long",
    "hit-wide-ids",
    "hit-cold",
    "lock-512",
    "miss",
    "miss-wide",
    "below-10",
    "below-100k",
    "evict-1k",
    "evict-40k",
    "evict-1m",
    "insert",
    "churn",
    "fill-512",
    "release-512",
];

fn case(name: &str) -> Option<Case> {
    Some(match name {
        "hit-1" => hit(8192, 1, false),
        "hit-16" => hit(8192, 16, false),
        "hit-512" => hit(8192, 512, false),
        "hit-forked-512" => hit(8192, 512, true),
        "hit-long" => hit(131_072, 1, false),
        "hit-wide-ids" => hit_wide_ids(8192),
        "hit-cold" => hit_cold(8192, 2048),
        "lock-512" => lock(8192, 512),
        "fill-512" => fill(8192, 512),
        "release-512" => release(8192, 512),
        "miss" => miss(10),
        "miss-wide" => miss(100_000),
        "below-10" => below(10),
        "below-100k" => below(100_000),
        "evict-1k" => evict(1000),
        "evict-40k" => evict(40_000),
        "evict-1m" => evict(1_000_000),
        "insert" => insert(8192),
        "churn" => churn(4_000_000, 1000),
        _ => return None,
    })
}

/// Runs `work`, which is `operations` of them; returns nanoseconds an operation.
fn measure(operations: u32, work: &mut dyn FnMut()) -> f64 {
    let nothing = clock(&mut || ());
    (clock(work) - nothing).max(0.0) / f64::from(operations)
}

fn clock(work: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    timed(work);
    nanoseconds(start)
}

/// What callgrind counts.
#[inline(never)]
fn timed(work: &mut dyn FnMut()) {
    black_box(work)();
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sample takes far less than 2^52 ns"
)]
fn nanoseconds(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The time to compare two runs of `n` tokens: what no cache can be faster than.
fn floor(n: usize) -> f64 {
    let (one, other) = (text(1, n), text(1, n));
    let compare = |_| {
        measure(1, &mut || {
            black_box(black_box(&one) == black_box(&other));
        })
    };
    median((0..200).map(compare).collect())
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

/// A text of `n` tokens cached as a path of `nodes` nodes; `forked`: each with two children.
fn path(n: usize, nodes: usize, forked: bool) -> (PrefixCache, Vec<u32>) {
    let mut cache = PrefixCache::new(2 * n / PAGE + 2, PAGE).expect("sizes are right");
    let tokens = text(1, n);
    let mut row = vec![0; n / PAGE + 1];
    publish(&mut cache, &tokens, &mut row);
    for part in 1..nodes {
        let mut shared = tokens[..part * (n / nodes)].to_vec();
        if forked {
            shared.extend([u32::from(u16::MAX); PAGE]);
            publish(&mut cache, &shared, &mut row);
        } else {
            let cut = cache.match_lock(NS, &shared);
            cache.release(cut.handle, None).expect("the handle is live");
        }
    }
    (cache, tokens)
}

/// Find and lock a text that is cached as `nodes` nodes.
fn hit(n: usize, nodes: usize, forked: bool) -> Case {
    let (mut cache, tokens) = path(n, nodes, forked);
    let sample = move || {
        let mut found = None;
        let time = measure(1, &mut || {
            found = Some(cache.match_lock(NS, black_box(&tokens)));
        });
        let found = found.expect("the work was done");
        assert_eq!(found.matched_tokens, tokens.len());
        cache.release(found.handle, None).expect("it is live");
        time
    };
    Case {
        tokens: n,
        nodes,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// As `hit` at one node, with 64-bit ids.
fn hit_wide_ids(n: usize) -> Case {
    let (mut cache, tokens) = path(n, 1, false);
    let tokens: Vec<i64> = tokens.into_iter().map(i64::from).collect();
    let sample = move || {
        let mut found = None;
        let time = measure(1, &mut || {
            found = Some(cache.match_lock(NS, black_box(&tokens)));
        });
        let found = found.expect("the work was done");
        assert_eq!(found.matched_tokens, tokens.len());
        cache.release(found.handle, None).expect("it is live");
        time
    };
    Case {
        tokens: n,
        nodes: 1,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Find one of `texts` texts, in an order that no processor cache can hold or foresee.
fn hit_cold(n: usize, texts: u32) -> Case {
    let pages = n / PAGE * texts as usize + 1;
    let mut cache = PrefixCache::new(pages, PAGE).expect("sizes are right");
    let mut row = vec![0; n / PAGE];
    let all: Vec<Vec<u32>> = (0..texts).map(|seed| text(seed, n)).collect();
    for tokens in &all {
        publish(&mut cache, tokens, &mut row);
    }
    let mut turn = 0;
    let sample = move || {
        turn += 1;
        let tokens = &all[(turn * 769) % all.len()];
        let mut found = None;
        let time = measure(1, &mut || found = Some(cache.match_lock(NS, tokens)));
        let found = found.expect("the work was done");
        assert_eq!(found.matched_tokens, n);
        cache.release(found.handle, None).expect("it is live");
        time
    };
    Case {
        tokens: n,
        nodes: 1,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Lock and unlock a path: finding, locking and releasing it less only finding it.
fn lock(n: usize, nodes: usize) -> Case {
    let (mut cache, tokens) = path(n, nodes, false);
    let sample = move || {
        let found = measure(1, &mut || {
            black_box(cache.peek(NS, black_box(&tokens)));
        });
        let locked = measure(1, &mut || {
            let found = cache.match_lock(NS, black_box(&tokens));
            cache.release(found.handle, None).expect("it is live");
        });
        locked - found
    };
    Case {
        tokens: n,
        nodes,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Write the pages of a locked path to a row.
fn fill(n: usize, nodes: usize) -> Case {
    let (mut cache, tokens) = path(n, nodes, false);
    let found = cache.match_lock(NS, &tokens);
    let mut row = vec![0; n / PAGE];
    let sample = move || {
        measure(1, &mut || {
            let filled = cache.fill_pages(found.handle, black_box(&mut row));
            assert_eq!(filled, Ok(n / PAGE));
        })
    };
    Case {
        tokens: n,
        nodes,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Release a path that nobody else has locked.
fn release(n: usize, nodes: usize) -> Case {
    let (mut cache, tokens) = path(n, nodes, false);
    let sample = move || {
        let found = cache.match_lock(NS, &tokens);
        measure(1, &mut || {
            cache.release(found.handle, None).expect("it is live");
        })
    };
    Case {
        tokens: n,
        nodes,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Look for a text whose first page is not among `children` others.
fn miss(children: u32) -> Case {
    const LOOKUPS: u32 = 64;
    let mut cache = PrefixCache::new(children as usize + 2, PAGE).expect("sizes are right");
    let mut row = [0; 1];
    let mut leaf = [1; PAGE];
    for child in 0..children {
        leaf[0] = child;
        publish(&mut cache, &leaf, &mut row);
    }
    let tokens = vec![u32::MAX; 8192];
    let sample = move || {
        measure(LOOKUPS, &mut || {
            for _ in 0..LOOKUPS {
                let found = cache.match_lock(NS, black_box(&tokens));
                cache.release(found.handle, None).expect("it is live");
            }
        })
    };
    Case {
        tokens: 8192,
        nodes: 0,
        operations: LOOKUPS,
        sample: Box::new(sample),
    }
}

/// Find one page below a page that has `children`, each in turn.
fn below(children: u32) -> Case {
    let mut cache = PrefixCache::new(children as usize + 2, PAGE).expect("sizes are right");
    let mut row = [0; 2];
    let mut tokens = [1; 2 * PAGE];
    for child in 0..children {
        tokens[PAGE] = child;
        publish(&mut cache, &tokens, &mut row);
    }
    let mut turn = 0;
    let sample = move || {
        turn = (turn + 7) % children;
        tokens[PAGE] = turn;
        measure(1, &mut || {
            let found = cache.match_lock(NS, black_box(&tokens));
            assert_eq!(found.matched_tokens, 2 * PAGE);
            cache.release(found.handle, None).expect("it is live");
        })
    };
    Case {
        tokens: 2 * PAGE,
        nodes: 2,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Evict 64 tokens where `leaves` leaves are cached.
fn evict(leaves: u32) -> Case {
    /// Whole leaves, so that those published again leave the cache as it was.
    const EVICTIONS: u32 = 12;
    const LEAVES: u32 = EVICTIONS * 4 / 6;
    let pages = leaves as usize * LEAF + 1;
    let mut cache = PrefixCache::new(pages, PAGE).expect("sizes are right");
    let mut row = [0; LEAF];
    let mut leaf = [1; LEAF * PAGE];
    for i in 0..leaves {
        leaf[0] = i;
        publish(&mut cache, &leaf, &mut row);
    }
    let mut next = leaves;
    let sample = move || {
        let time = measure(EVICTIONS, &mut || {
            for _ in 0..EVICTIONS {
                assert_eq!(black_box(cache.evict(64 / PAGE)), 64 / PAGE);
            }
        });
        for _ in 0..LEAVES {
            leaf[0] = next;
            next = (next + 1) % (1 << 30);
            publish(&mut cache, &leaf, &mut row);
        }
        time
    };
    Case {
        tokens: 64,
        nodes: 0,
        operations: EVICTIONS,
        sample: Box::new(sample),
    }
}

/// Publish new tokens in a full cache: look up, allocate by evicting, insert, release.
fn insert(n: usize) -> Case {
    let mut cache = PrefixCache::new(10 * n / PAGE + 1, PAGE).expect("sizes are right");
    let mut row = vec![0; n / PAGE];
    let mut tokens = text(1, n);
    let mut turn = 0;
    let sample = move || {
        turn += 1;
        tokens[0] = turn;
        measure(1, &mut || publish(&mut cache, &tokens, &mut row))
    };
    Case {
        tokens: n,
        nodes: 1,
        operations: 1,
        sample: Box::new(sample),
    }
}

/// Publish texts of very different lengths, none in any processor cache, in a full cache.
fn churn(capacity: usize, texts: u32) -> Case {
    const MEAN: usize = 12_000;
    let mut cache = PrefixCache::new(capacity / PAGE + 1, PAGE).expect("sizes are right");
    let mut row = vec![0; 10 * MEAN / PAGE];
    let length = |seed: u32| match seed % 8 {
        0 => 4 * MEAN,
        seed => MEAN / 8 * seed as usize,
    };
    let all: Vec<Vec<u32>> = (0..texts).map(|seed| text(seed, length(seed))).collect();
    let mut turn = 0;
    let mut next = move || {
        turn += 1;
        let tokens = &all[(turn * 769) % all.len()];
        measure(1, &mut || publish(&mut cache, tokens, &mut row))
    };
    for _ in 0..texts {
        next();
    }
    Case {
        tokens: MEAN,
        nodes: 1,
        operations: 1,
        sample: Box::new(next),
    }
}
