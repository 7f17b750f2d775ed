//! Measures resident memory: `memory PAGES LEAF_TOKENS TURNOVERS` fills a cache of that many pages
//! of 16 tokens with texts of `LEAF_TOKENS` tokens behind a few shared prefixes, again and again,
//! and prints one line of JSON: bytes a cached token, and resident bytes after each turnover.

use rampway_prefix_cache::PrefixCache;

const PAGE: usize = 16;
/// Texts that share a first page: as many as behind a short system prompt.
const SHARED_BY: u32 = 64;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let mut next = |otherwise| arguments.next().and_then(Result::ok).unwrap_or(otherwise);
    let (pages, leaf, turnovers) = (next(1 << 20), next(96), next(1));
    let Some(before) = resident() else {
        println!("{{\"skipped\": \"no /proc/self/statm here\"}}");
        return;
    };
    let mut cache = PrefixCache::new(pages, PAGE).expect("sizes are right");
    let mut row = vec![0; leaf / PAGE];
    let mut tokens = vec![7; leaf];
    let (mut text, mut after) = (0, Vec::new());
    for turnover in 1..=turnovers {
        while cache.stats().inserted_pages < (turnover * (pages - 1)) as u64 {
            tokens[0] = text / SHARED_BY;
            tokens[PAGE] = text % SHARED_BY;
            text = (text + 1) % (1 << 30);
            publish(&mut cache, &tokens, &mut row);
        }
        after.push(resident().unwrap_or(before) - before);
    }
    let stats = cache.stats();
    let cached = (stats.evictable + stats.protected) * PAGE;
    println!(
        "{{\"tokens\": {cached}, \"nodes\": {}, \"tokens_a_node\": {:.1}, \"bytes_a_token\": {:.3}, \
         \"resident\": {after:?}}}",
        stats.nodes,
        ratio(cached, stats.nodes),
        ratio(*after.last().expect("one turnover"), cached),
    );
}

fn publish(cache: &mut PrefixCache, tokens: &[u32], row: &mut [u32]) {
    let found = cache.match_lock(b"", tokens);
    let held = cache
        .fill_pages(found.handle, row)
        .expect("the row is long enough");
    assert!(cache.alloc(&mut row[held..]));
    cache
        .insert(found.handle, tokens, row)
        .expect("pages are ours");
    cache
        .release(found.handle, None)
        .expect("the handle is live");
}

/// Resident bytes of this process.
fn resident() -> Option<usize> {
    const SYSTEM_PAGE: usize = 4096;
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = sizes.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * SYSTEM_PAGE)
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn ratio(a: usize, b: usize) -> f64 {
    a as f64 / b as f64
}
