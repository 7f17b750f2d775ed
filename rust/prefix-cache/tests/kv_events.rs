//! What routers are told: names of blocks, salts, and what happens when nobody listens.

use rampway_prefix_cache::{Event, PrefixCache};

fn publish(cache: &mut PrefixCache, namespace: &[u8], tokens: &[u32]) {
    let found = cache.match_lock(namespace, tokens);
    let mut row = vec![0; tokens.len() / cache.page_size()];
    let held = cache.fill_pages(found.handle, &mut row).unwrap();
    assert!(cache.alloc(&mut row[held..]));
    cache.insert(found.handle, tokens, &row).unwrap();
    cache.release(found.handle, None).unwrap();
}

fn blocks(cache: &mut PrefixCache) -> Vec<u64> {
    let told = cache.drain_events().events.into_iter();
    told.flat_map(|event| match event {
        Event::Stored { blocks, .. } => blocks,
        _ => Vec::new(),
    })
    .collect()
}

#[test]
fn given_events_off_when_drained_then_there_are_none() {
    let mut cache = PrefixCache::new(16, 2).unwrap();
    publish(&mut cache, b"", &[1, 2, 3, 4]);
    assert_eq!(
        cache.drain_events(),
        rampway_prefix_cache::Drained::default()
    );
}

#[test]
fn given_two_caches_when_they_hold_one_text_then_they_tell_the_same_names() {
    let names = [&[1, 2, 3, 4, 5, 6][..], &[1, 2, 3, 4]].map(|tokens| {
        let mut cache = PrefixCache::new(16, 2).unwrap();
        cache.enable_events(10);
        publish(&mut cache, b"t", tokens);
        blocks(&mut cache)
    });
    assert_eq!(names[0][..2], names[1][..]);
    assert_eq!(names[0].len(), 3);
}

#[test]
fn sglang_24568_given_two_salts_when_one_text_is_cached_then_no_name_is_shared() {
    let mut cache = PrefixCache::new(32, 2).unwrap();
    cache.enable_events(10);
    publish(&mut cache, b"a", &[1, 2, 3, 4]);
    let first = blocks(&mut cache);
    publish(&mut cache, b"b", &[1, 2, 3, 4]);
    let second = blocks(&mut cache);
    assert!(first.iter().all(|name| !second.contains(name)));
    publish(&mut cache, b"", &[1, 2, 3, 4]);
    let unsalted = blocks(&mut cache);
    assert!(unsalted.iter().all(|name| !first.contains(name)));
}

#[test]
fn given_nobody_who_drains_when_the_queue_is_full_then_memory_is_bounded_and_the_loss_is_told() {
    let mut cache = PrefixCache::new(64, 2).unwrap();
    cache.enable_events(4);
    for i in 0..20 {
        publish(&mut cache, b"", &[i, i]);
    }
    let drained = cache.drain_events();
    assert_eq!((drained.events.len(), drained.lost), (4, 17));
    cache.enable_events(100);
    let anew = cache.drain_events();
    assert_eq!(anew.events.first(), Some(&Event::Cleared));
    assert_eq!((anew.events.len(), anew.lost), (21, 0));
}

#[test]
fn given_a_text_when_its_tail_is_evicted_then_its_last_block_goes_first() {
    let mut cache = PrefixCache::new(16, 2).unwrap();
    cache.enable_events(10);
    publish(&mut cache, b"", &[1, 2, 3, 4, 5, 6]);
    let mut names = blocks(&mut cache);
    assert_eq!(cache.evict(2), 2);
    names.reverse();
    names.truncate(2);
    let blocks = names;
    assert_eq!(cache.drain_events().events, [Event::Removed { blocks }]);
}

#[test]
fn given_cached_pages_when_all_are_cleared_then_one_event_says_so() {
    let mut cache = PrefixCache::new(16, 2).unwrap();
    cache.enable_events(10);
    publish(&mut cache, b"", &[1, 2, 3, 4]);
    cache.drain_events();
    assert_eq!(cache.clear(), 2);
    assert_eq!(cache.drain_events().events, [Event::Cleared]);
}

#[test]
fn dynamo_8197_given_lost_events_when_told_anew_then_no_block_hangs_below_an_unknown_parent() {
    let mut cache = PrefixCache::new(64, 2).unwrap();
    cache.enable_events(1);
    for i in 0..8 {
        publish(&mut cache, b"tenant", &[1, 1, i, i]);
        publish(&mut cache, b"tenant", &[1, 1, i, i, 7, 7]);
    }
    assert!(cache.drain_events().lost > 0);
    cache.enable_events(1000);
    let mut known = std::collections::HashSet::new();
    for event in cache.drain_events().events {
        if let Event::Stored {
            parent,
            blocks,
            namespace,
            ..
        } = event
        {
            assert_eq!(*namespace, *b"tenant");
            assert!(parent.is_none_or(|parent| known.contains(&parent)));
            known.extend(blocks);
        }
    }
    assert_eq!(known.len(), cache.stats().evictable);
}
