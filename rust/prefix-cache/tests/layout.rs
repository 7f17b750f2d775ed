//! How texts lie in the tree: what shares a node, what costs memory.

use rampway_prefix_cache::{Error, MAX_ID, Policy, PrefixCache};

fn text(n: u32) -> Vec<u32> {
    (0..n).collect()
}

/// Publishes the first `published` tokens of a running request.
fn publish(cache: &mut PrefixCache, handle: u64, row: &[u32], published: u32) {
    cache.insert(handle, &text(published), row).unwrap();
    cache.check().unwrap();
}

/// The nodes of the tree, its one root aside.
fn nodes(cache: &PrefixCache) -> usize {
    cache.stats().nodes - 1
}

#[test]
fn given_a_prompt_computed_in_chunks_when_published_chunk_by_chunk_then_it_is_one_node() {
    for policy in [Policy::Lru, Policy::Lfu, Policy::Slru, Policy::Priority] {
        let mut cache = PrefixCache::with_policy(64, 4, policy).unwrap();
        let found = cache.match_lock(b"", &text(160));
        let mut row = [0; 40];
        assert!(cache.alloc(&mut row));
        for published in (8..=160).step_by(8) {
            publish(&mut cache, found.handle, &row, published);
        }
        assert_eq!(nodes(&cache), 1);
    }
}

#[test]
fn given_a_conversation_when_each_turn_extends_the_last_then_it_stays_one_node() {
    let mut cache = PrefixCache::new(64, 4).unwrap();
    for turn in 1..=10 {
        let found = cache.match_lock(b"", &text(turn * 16));
        assert_eq!(found.matched_tokens, (turn as usize - 1) * 16);
        let mut row = [0; 40];
        let held = cache.fill_pages(found.handle, &mut row).unwrap();
        assert!(cache.alloc(&mut row[held..turn as usize * 4]));
        publish(&mut cache, found.handle, &row, turn * 16);
        cache.release(found.handle, None).unwrap();
    }
    assert_eq!(nodes(&cache), 1);
}

#[test]
fn given_a_bad_token_or_page_when_a_leaf_would_grow_then_nothing_changes_and_the_next_try_works() {
    const BAD: u32 = MAX_ID + 1;
    let mut cache = PrefixCache::new(4096, 16).unwrap();
    let mut row = vec![0; 2000];
    let found = cache.match_lock(b"", &text(16));
    assert!(cache.alloc(&mut row));
    publish(&mut cache, found.handle, &row, 64);
    let before = cache.stats();
    // One in the run that continues the leaf in place, one in the run behind it.
    for index in [100, 30_000] {
        let mut tokens = text(32_000);
        tokens[index] = BAD;
        let refused = cache.insert(found.handle, &tokens, &row);
        assert_eq!(refused, Err(Error::TokenOutOfRange { index, token: BAD }));
        cache.check().unwrap();
    }
    let mut pages = row.clone();
    pages[10] = pages[9];
    let refused = cache.insert(found.handle, &text(32_000), &pages);
    assert_eq!(refused, Err(Error::RepeatedPage { page: row[9] }));
    cache.check().unwrap();
    assert_eq!(cache.stats(), before);
    publish(&mut cache, found.handle, &row, 32_000);
    assert_eq!(cache.peek(b"", &text(32_000)), 32_000);
}

#[test]
fn given_a_leaf_two_requests_hold_when_one_extends_it_then_the_other_does_not_hold_more() {
    let mut cache = PrefixCache::new(64, 4).unwrap();
    let one = cache.match_lock(b"", &text(16));
    let mut row = [0; 8];
    assert!(cache.alloc(&mut row));
    publish(&mut cache, one.handle, &row, 16);
    let two = cache.match_lock(b"", &text(16));
    publish(&mut cache, one.handle, &row, 32);
    assert_eq!(nodes(&cache), 2);
    cache.release(one.handle, None).unwrap();
    assert_eq!((cache.evict(9), cache.stats().protected), (4, 4));
    cache.release(two.handle, None).unwrap();
    cache.check().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn given_a_long_text_when_only_its_start_is_asked_then_the_rest_can_go_page_by_page() {
    let mut cache = PrefixCache::new(1025, 4).unwrap();
    let found = cache.match_lock(b"", &text(4096));
    let mut row = [0; 1024];
    assert!(cache.alloc(&mut row));
    publish(&mut cache, found.handle, &row, 4096);
    cache.release(found.handle, None).unwrap();
    let start = cache.match_lock(b"", &text(44));
    assert_eq!((start.matched_tokens, nodes(&cache)), (44, 2));
    for left in (11..1024).rev() {
        assert_eq!(cache.evict(1), 1);
        assert_eq!(cache.peek(b"", &text(4096)), left * 4);
    }
    assert_eq!((cache.evict(1), nodes(&cache)), (0, 1));
    cache.check().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn given_a_very_long_text_when_published_in_parts_then_it_is_a_chain_of_long_runs_found_whole() {
    let mut cache = PrefixCache::new(16_000, 16).unwrap();
    cache.enable_events(100);
    let (long, longer) = (text(16 * 5000), text(16 * 12_000));
    let mut row = vec![0; 12_000];
    let found = cache.match_lock(b"", &longer);
    assert!(cache.alloc(&mut row));
    assert_eq!(cache.insert(found.handle, &long, &row).unwrap().held, 5000);
    assert_eq!(
        cache.insert(found.handle, &longer, &row).unwrap().held,
        12_000
    );
    assert_eq!(nodes(&cache), 12_000_usize.div_ceil(1445));
    let mut filled = vec![0; 12_000];
    assert_eq!(cache.fill_pages(found.handle, &mut filled), Ok(12_000));
    assert_eq!(filled, row);
    cache.release(found.handle, None).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.peek(b"", &longer), longer.len());
    assert_eq!(cache.evict(11_000), 11_000);
    assert_eq!(cache.peek(b"", &longer), 16 * 1000);
    cache.check().unwrap();
}
