//! What a cached token costs. Alone in its process, whose memory it measures.

use rampway_prefix_cache::PrefixCache;

const PAGE: usize = 16;

/// Resident bytes of this process; `None` where the system does not say.
fn resident() -> Option<usize> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = sizes.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn given_nodes_of_96_tokens_when_the_pool_is_full_then_a_token_costs_at_most_6_bytes() {
    let Some(before) = resident() else {
        eprintln!("SKIPPED: this system does not tell resident memory");
        return;
    };
    let mut cache = PrefixCache::new(400_000, PAGE).unwrap();
    let mut tokens = vec![7; 7 * PAGE]; // a shared page and 96 tokens more
    for turn in 0.. {
        tokens[0] = turn / 64;
        tokens[PAGE] = turn;
        if cache.stats().evicted_pages > 0 {
            break;
        }
        let found = cache.match_lock(b"", &tokens);
        let mut row = [0; 7];
        let held = cache.fill_pages(found.handle, &mut row).unwrap();
        assert!(cache.alloc(&mut row[held..]));
        cache.insert(found.handle, &tokens, &row).unwrap();
        cache.release(found.handle, None).unwrap();
    }
    let stats = cache.stats();
    let cached = stats.evictable * PAGE;
    let mean = cached / stats.nodes;
    assert!((90..=100).contains(&mean), "mean node of {mean} tokens");
    let bytes = resident().unwrap() - before;
    assert!(bytes <= 6 * cached, "{bytes} bytes for {cached} tokens");
}
