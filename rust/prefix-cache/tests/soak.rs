//! Turning the pool over again and again costs no memory.

use rampway_prefix_cache::PrefixCache;

const PAGE: usize = 16;

/// Resident bytes of this process; `None` where the system does not say.
fn resident() -> Option<usize> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = sizes.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// A text of up to `longest` pages behind one of 64 shared first pages.
fn text(turn: u32, longest: u32) -> Vec<u32> {
    let mixed = turn.wrapping_mul(2_654_435_761) >> 8;
    let pages = 2 + mixed % (longest - 1);
    let mut tokens = vec![mixed; pages as usize * PAGE];
    tokens[..PAGE].fill(turn % 64);
    tokens[PAGE] = turn;
    tokens
}

fn publish(cache: &mut PrefixCache, tenant: u32, tokens: &[u32]) {
    let found = cache.match_lock(&tenant.to_le_bytes(), tokens);
    let mut row = vec![0; tokens.len() / PAGE];
    let held = cache.fill_pages(found.handle, &mut row).unwrap();
    assert!(cache.alloc(&mut row[held..]));
    cache.insert(found.handle, tokens, &row).unwrap();
    cache.release(found.handle, None).unwrap();
}

/// Fills the pool `turnovers` times over; returns resident bytes after each time.
fn turn_over(cache: &mut PrefixCache, turnovers: u64, longest: u32) -> Option<Vec<usize>> {
    let mut turn = 0;
    (1..=turnovers)
        .map(|turnover| {
            while cache.stats().inserted_pages < turnover * cache.num_pages() as u64 {
                publish(cache, turn % 7, &text(turn, longest));
                turn += 1;
            }
            cache.check().unwrap();
            resident()
        })
        .collect()
}

fn soak(pages: usize, turnovers: u64) {
    let mut cache = PrefixCache::new(pages, PAGE).unwrap();
    let Some(resident) = turn_over(&mut cache, turnovers, 40) else {
        eprintln!("SKIPPED: this system does not tell resident memory");
        return;
    };
    // Texts of 2 to 40 pages in any order: the allocator needs a while to find its holes.
    let (steady, last) = (resident[resident.len() / 3], *resident.last().unwrap());
    assert!(last <= steady + steady / 20, "it grew: {resident:?}");
    cache.clear();
    assert_eq!(cache.stats().nodes, 0);
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn given_ten_turnovers_of_the_pool_when_measured_then_resident_memory_is_flat() {
    soak(50_000, 12);
}

#[test]
#[ignore = "minutes: cargo test --release --test soak -- --ignored"]
fn given_a_hundred_turnovers_of_a_large_pool_when_measured_then_resident_memory_is_flat() {
    soak(500_000, 100);
}
