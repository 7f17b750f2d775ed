//! One test for each published fault of another engine's prefix cache, named after its report.

use rampway_prefix_cache::{Error, MAX_ID, Owner, PrefixCache, Stats};

const PAGE: usize = 4;
const NS: &[u8] = b"tenant";

fn cache(pages: usize) -> PrefixCache {
    PrefixCache::new(pages, PAGE).unwrap()
}

fn run(first: u32, n: u32) -> Vec<u32> {
    (first..first + n).collect()
}

/// One request from start to end; returns the pages of its full pages.
fn serve(cache: &mut PrefixCache, namespace: &[u8], tokens: &[u32]) -> Vec<u32> {
    let found = cache.match_lock(namespace, tokens);
    let mut row = vec![0; tokens.len() / PAGE];
    let held = cache.fill_pages(found.handle, &mut row).unwrap();
    assert!(cache.alloc(&mut row[held..]));
    let done = cache.insert(found.handle, tokens, &row).unwrap();
    cache.fill_pages(found.handle, &mut row).unwrap();
    cache.free(&done.duplicates, None).unwrap();
    cache.release(found.handle, None).unwrap();
    cache.check().unwrap();
    row
}

/// (free, evictable, protected, owned, deferred), which add up with the reserved page.
fn pages(cache: &PrefixCache) -> [usize; 5] {
    let s = cache.stats();
    let all = [s.free, s.evictable, s.protected, s.owned, s.deferred];
    assert_eq!(all.iter().sum::<usize>() + s.reserved, s.total);
    all
}

#[test]
fn sglang_10637_given_a_key_shorter_than_a_page_when_used_then_nothing_matches_or_is_cached() {
    let mut cache = cache(8);
    serve(&mut cache, NS, &run(0, 8));
    for n in 0..PAGE {
        let found = cache.match_lock(NS, &run(0, 8)[..n]);
        assert_eq!(found.matched_tokens, 0);
        let done = cache.insert(found.handle, &run(0, 8)[..n], &[]).unwrap();
        assert_eq!((done.held, done.adopted), (0, 0));
        cache.release(found.handle, None).unwrap();
    }
    assert_eq!(pages(&cache), [5, 2, 0, 0, 0]);
}

#[test]
fn sglang_35270_given_a_prefix_shared_by_three_when_counted_then_each_page_counts_once() {
    let mut cache = cache(8);
    serve(&mut cache, NS, &run(0, 8));
    let held: Vec<u64> = (0..3)
        .map(|_| cache.match_lock(NS, &run(0, 8)).handle)
        .collect();
    assert_eq!(pages(&cache), [5, 0, 2, 0, 0]);
    for handle in held {
        cache.release(handle, None).unwrap();
        cache.check().unwrap();
    }
    assert_eq!(pages(&cache), [5, 2, 0, 0, 0]);
}

#[test]
fn sglang_12224_given_a_finished_request_when_finished_again_then_refused_and_no_page_is_freed_twice()
 {
    let mut cache = cache(8);
    let found = cache.match_lock(NS, &run(0, 4));
    let mut row = [0; 2];
    assert!(cache.alloc(&mut row));
    cache.free(&row, None).unwrap();
    cache.release(found.handle, None).unwrap();
    let before = cache.stats();
    let handle = found.handle;
    assert_eq!(
        cache.release(handle, None),
        Err(Error::StaleHandle { handle })
    );
    let owner = Some(Owner::Free);
    let page = row[0];
    assert_eq!(cache.free(&row, None), Err(Error::NotOwned { page, owner }));
    assert_eq!(cache.stats(), before);
    cache.check().unwrap();
}

#[test]
fn sglang_35204_given_more_pages_than_tokens_when_inserted_then_only_the_tokens_pages_are_cached() {
    let mut cache = cache(8);
    let found = cache.match_lock(NS, &run(0, 9));
    let mut row = [0; 4];
    assert!(cache.alloc(&mut row));
    let done = cache.insert(found.handle, &run(0, 9), &row).unwrap();
    assert_eq!((done.held, done.adopted), (2, 2));
    assert_eq!(pages(&cache), [3, 0, 2, 2, 0]);
    cache.free(&row[2..], None).unwrap();
    cache.check().unwrap();
}

#[test]
fn sglang_24153_given_a_locked_node_when_split_then_both_halves_stay_locked_until_its_release() {
    let mut cache = cache(8);
    serve(&mut cache, NS, &run(0, 16));
    let long = cache.match_lock(NS, &run(0, 16));
    let short = cache.match_lock(NS, &run(0, 8));
    assert_eq!(cache.evict(9), 0);
    cache.release(short.handle, None).unwrap();
    assert_eq!(cache.evict(9), 0);
    cache.release(long.handle, None).unwrap();
    assert_eq!(cache.evict(9), 4);
    cache.check().unwrap();
}

#[test]
fn sglang_fork_508_given_a_partial_match_when_locked_then_exactly_the_matched_pages_are_protected()
{
    let mut cache = cache(16);
    serve(&mut cache, NS, &run(0, 40));
    let mut question = run(0, 14);
    question.extend(run(900, 10));
    assert_eq!(cache.match_lock(NS, &question).matched_tokens, 12);
    assert_eq!(pages(&cache), [5, 7, 3, 0, 0]);
    cache.check().unwrap();
}

#[test]
fn mini_sglang_52_given_a_locked_leaf_when_everything_is_evicted_then_it_stays() {
    let mut cache = cache(8);
    serve(&mut cache, NS, &run(0, 8));
    let _held = cache.match_lock(NS, &run(0, 8));
    assert_eq!((cache.evict(9), cache.clear()), (0, 0));
    assert_eq!(cache.peek(NS, &run(0, 8)), 8);
}

#[test]
fn sglang_16067_given_no_room_when_scheduling_fails_then_dropping_the_handle_undoes_the_match() {
    let mut cache = cache(6);
    serve(&mut cache, NS, &run(0, 16));
    let before = pages(&cache);
    let found = cache.match_lock(NS, &run(0, 40));
    assert!(!cache.alloc(&mut [0; 6]));
    cache.release(found.handle, None).unwrap();
    assert_eq!(pages(&cache), before);
    assert_eq!(cache.peek(NS, &run(0, 16)), 16);
}

#[test]
fn sglang_24371_given_any_remainder_when_looked_up_then_no_index_error() {
    let mut cache = cache(16);
    serve(&mut cache, NS, &run(0, 16));
    for n in 0..24 {
        let tokens = run(0, n);
        let whole = tokens.len().min(16) / PAGE * PAGE;
        assert_eq!(cache.peek(NS, &tokens), whole);
        let found = cache.match_lock(NS, &tokens);
        assert_eq!(found.matched_tokens, whole);
        cache.release(found.handle, None).unwrap();
        cache.check().unwrap();
    }
}

#[test]
fn sglang_22592_given_a_chain_of_parents_when_evicted_then_each_goes_after_its_last_child() {
    let mut cache = cache(32);
    for n in 1..=5_u32 {
        let mut tokens = run(0, n * 8);
        tokens.extend(run(1000 * n, 8));
        serve(&mut cache, NS, &tokens);
    }
    let mut cached = cache.stats().evictable;
    while cached > 0 {
        assert_eq!(cache.evict(1), 1);
        cached -= 1;
        assert_eq!(cache.stats().evictable, cached);
        cache.check().unwrap();
    }
    assert_eq!(cache.stats().nodes, 0);
}

#[test]
fn sglang_6778_given_a_full_cache_when_asked_for_room_then_evictable_counts_as_available() {
    let mut cache = cache(9);
    serve(&mut cache, NS, &run(0, 32));
    assert_eq!(pages(&cache), [0, 8, 0, 0, 0]);
    assert_eq!(cache.available(), 8);
    assert!(cache.alloc(&mut [0; 8]));
}

#[test]
fn sglang_5221_given_texts_that_differ_inside_a_page_when_cached_then_no_page_is_split() {
    let mut cache = cache(16);
    serve(&mut cache, NS, &run(0, 12));
    let mut other = run(0, 12);
    other[6] = 77;
    serve(&mut cache, NS, &other);
    assert_eq!(cache.peek(NS, &other), 12);
    assert_eq!(cache.stats().evictable, 5);
    assert_eq!(cache.peek(NS, &other[..7]), 4);
}

#[test]
fn sglang_38981_given_an_abort_when_a_page_is_freed_in_two_pieces_then_refused_whole() {
    let mut cache = cache(8);
    let mut row = [0; 3];
    assert!(cache.alloc(&mut row));
    let page = row[1];
    let twice = [row[0], page, page];
    assert_eq!(cache.free(&twice, None), Err(Error::RepeatedPage { page }));
    assert_eq!(pages(&cache), [4, 0, 0, 3, 0]);
    cache.free(&row, None).unwrap();
    cache.check().unwrap();
}

#[test]
fn sglang_38355_given_a_retracted_request_when_it_frees_its_row_then_the_trees_pages_are_safe() {
    let mut cache = cache(8);
    let found = cache.match_lock(NS, &run(0, 12));
    let mut row = [0; 3];
    assert!(cache.alloc(&mut row));
    cache.insert(found.handle, &run(0, 8), &row).unwrap();
    let (page, owner) = (row[0], Some(Owner::Tree));
    assert_eq!(cache.free(&row, None), Err(Error::NotOwned { page, owner }));
    cache.free(&row[2..], None).unwrap();
    cache.release(found.handle, None).unwrap();
    assert_eq!(cache.peek(NS, &run(0, 12)), 8);
    cache.check().unwrap();
}

#[test]
fn nano_vllm_209_given_allocated_but_not_computed_pages_when_another_looks_then_it_finds_nothing() {
    let mut cache = cache(8);
    let first = cache.match_lock(NS, &run(0, 8));
    let mut row = [0; 2];
    assert!(cache.alloc(&mut row));
    assert_eq!(cache.match_lock(NS, &run(0, 8)).matched_tokens, 0);
    cache.insert(first.handle, &run(0, 4), &row).unwrap();
    assert_eq!(cache.match_lock(NS, &run(0, 8)).matched_tokens, 4);
}

#[test]
fn vllm_45357_given_a_step_in_flight_when_its_pages_are_freed_then_none_is_reused_before_it_ends() {
    let mut cache = cache(5);
    serve(&mut cache, NS, &run(0, 8));
    let found = cache.match_lock(NS, &run(0, 12));
    let mut own = [0; 2];
    assert!(cache.alloc(&mut own));
    cache.free(&own, Some(8)).unwrap();
    cache.release(found.handle, Some(8)).unwrap();
    assert_eq!(pages(&cache), [0, 0, 2, 0, 2]);
    assert_eq!(cache.retire(7), 0);
    assert!(!cache.alloc(&mut [0; 1]));
    assert_eq!(cache.retire(8), 2);
    assert!(cache.alloc(&mut [0; 4]));
    cache.check().unwrap();
}

#[test]
fn vllm_42571_given_a_block_in_the_free_list_when_freed_again_then_it_is_there_once() {
    let mut cache = cache(4);
    let mut row = [0; 3];
    assert!(cache.alloc(&mut row));
    cache.free(&row[..1], None).unwrap();
    assert!(cache.free(&row[..2], None).is_err());
    assert!(cache.free(&row[..1], None).is_err());
    assert_eq!(pages(&cache), [1, 0, 0, 2, 0]);
    cache.check().unwrap();
}

#[test]
fn vllm_4761_given_an_evicted_page_when_looked_up_then_it_is_gone_from_the_tree_at_once() {
    let mut cache = cache(5);
    let tokens = run(0, 16);
    serve(&mut cache, NS, &tokens);
    for left in (0..4).rev() {
        assert_eq!(cache.evict(1), 1);
        assert_eq!(cache.peek(NS, &tokens), left * PAGE);
        cache.check().unwrap();
    }
}

#[test]
fn vllm_41400_given_a_hit_when_pages_are_allocated_then_the_hit_is_not_evicted_for_them() {
    let mut cache = cache(5);
    let cached = serve(&mut cache, NS, &run(0, 8));
    let found = cache.match_lock(NS, &run(0, 16));
    let mut fresh = [0; 2];
    assert!(cache.alloc(&mut fresh));
    assert!(fresh.iter().all(|page| !cached.contains(page)));
    assert!(!cache.alloc(&mut [0; 1]));
    assert_eq!(cache.peek(NS, &run(0, 8)), 8);
    cache.release(found.handle, None).unwrap();
}

#[test]
fn vllm_11186_given_a_prompt_cached_whole_when_all_but_one_token_is_asked_then_some_is_left() {
    let mut cache = cache(8);
    let tokens = run(0, 8);
    serve(&mut cache, NS, &tokens);
    let found = cache.match_lock(NS, &tokens[..tokens.len() - 1]);
    assert_eq!(found.matched_tokens, 4);
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn sglang_38371_given_many_leaves_when_a_few_pages_are_evicted_then_only_the_oldest_are_touched() {
    let mut cache = PrefixCache::new(50_001, 1).unwrap();
    for leaf in 0..50_000 {
        let found = cache.match_lock(NS, &[leaf]);
        let mut row = [0];
        assert!(cache.alloc(&mut row));
        cache.insert(found.handle, &[leaf], &row).unwrap();
        cache.release(found.handle, None).unwrap();
    }
    for round in 0..2_000_u32 {
        assert_eq!(cache.evict(16), 16);
        assert_eq!(cache.peek(NS, &[round * 16 + 15]), 0);
        assert_eq!(cache.peek(NS, &[round * 16 + 16]), 1);
    }
    cache.check().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn sglang_36128_given_100_000_siblings_when_looked_up_then_each_is_found_directly() {
    let mut cache = PrefixCache::new(100_010, 1).unwrap();
    for child in 0..100_000 {
        let tokens = [7, child];
        let found = cache.match_lock(NS, &tokens);
        let mut row = [0; 2];
        let held = cache.fill_pages(found.handle, &mut row).unwrap();
        assert!(cache.alloc(&mut row[held..]));
        cache.insert(found.handle, &tokens, &row).unwrap();
        cache.release(found.handle, None).unwrap();
    }
    assert!((0..100_000).all(|child| cache.peek(NS, &[7, child]) == 2));
    assert_eq!(cache.peek(NS, &[7, 100_000]), 1);
    cache.check().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn ghsa_rm76_given_many_first_pages_when_looked_up_then_only_equal_tokens_match() {
    let mut cache = PrefixCache::new(20_001, 2).unwrap();
    for i in 0..20_000 {
        let tokens = [i, i + 50_000];
        let found = cache.match_lock(NS, &tokens);
        let mut row = [0];
        assert!(cache.alloc(&mut row));
        cache.insert(found.handle, &tokens, &row).unwrap();
        cache.release(found.handle, None).unwrap();
        assert_eq!(cache.peek(NS, &[i, i + 50_001]), 0);
        assert_eq!(cache.peek(NS, &[i + 50_000, i]), 0);
    }
    cache.check().unwrap();
}

#[test]
fn sglang_26747_given_two_salts_when_one_text_is_cached_then_the_other_never_sees_it() {
    let mut cache = cache(64);
    let names: [&[u8]; 6] = [b"", b"\0", b"a", b"ab", b"a\0b", b"b"];
    for (i, name) in names.iter().enumerate() {
        for other in &names[i..] {
            assert_eq!(cache.match_lock(other, &run(0, 8)).matched_tokens, 0);
        }
        serve(&mut cache, name, &run(0, 8));
    }
    assert_eq!(cache.stats().evictable, 2 * names.len());
}

#[test]
fn vllm_30931_given_new_weights_of_one_adapter_when_the_namespace_changes_then_no_old_page_matches()
{
    let mut cache = cache(16);
    serve(&mut cache, b"adapter@1", &run(0, 8));
    assert_eq!(cache.peek(b"adapter@2", &run(0, 8)), 0);
    assert_eq!(cache.peek(b"adapter@1", &run(0, 8)), 8);
}

#[test]
fn sglang_rust_poisoning_given_every_kind_of_misuse_when_refused_then_the_cache_goes_on() {
    let mut cache = cache(8);
    let found = cache.match_lock(NS, &run(0, 8));
    let mut row = [0; 2];
    assert!(cache.alloc(&mut row));
    let before = cache.stats();
    let page = row[0];
    let refused = [
        cache.release(0, None).unwrap_err(),
        cache.release(u64::MAX, None).unwrap_err(),
        cache.fill_pages(u64::MAX, &mut row).unwrap_err(),
        cache.free(&[0], None).unwrap_err(),
        cache.free(&[u32::MAX], None).unwrap_err(),
        cache
            .insert(found.handle, &run(0, 8), &row[..1])
            .unwrap_err(),
        cache
            .insert(found.handle, &run(0, 8), &[page, page])
            .unwrap_err(),
        cache
            .insert(found.handle, &run(0, 8), &[page, 0])
            .unwrap_err(),
        cache
            .insert(found.handle, &[MAX_ID + 1; 8], &row)
            .unwrap_err(),
        cache
            .release_many(&[found.handle, found.handle], None)
            .unwrap_err(),
        cache.release_many(&[found.handle, 0], None).unwrap_err(),
        PrefixCache::new(1, PAGE).unwrap_err(),
        PrefixCache::new(8, 0).unwrap_err(),
    ];
    assert!(
        refused
            .iter()
            .all(|error| error.to_string().contains("need"))
    );
    assert_eq!(cache.stats(), before);
    cache.check().unwrap();
    cache.insert(found.handle, &run(0, 8), &row).unwrap();
    cache.release_many(&[found.handle], None).unwrap();
    cache.check().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn dynamo_10774_given_ten_turnovers_of_the_pool_when_counted_then_nothing_grows() {
    let mut cache = PrefixCache::new(257, PAGE).unwrap();
    let mut steady = Stats::default();
    for round in 0..2_000_u32 {
        let tenant = (round % 50).to_le_bytes();
        let mut tokens = run(0, 4 * (round % 5));
        tokens.extend(run(round * 64, 4 * (1 + round % 7)));
        serve(&mut cache, &tenant, &tokens);
        let now = cache.stats();
        if round == 500 {
            steady = now;
        }
        assert!(round <= 500 || now.nodes < 2 * steady.nodes);
    }
    assert!(cache.stats().evicted_pages > 10 * 256);
    cache.clear();
    assert_eq!(cache.stats().nodes, 0);
    cache.check().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn sglang_6888_given_load_of_every_kind_when_it_ends_then_every_page_is_accounted_for_at_each_step()
{
    let mut cache = cache(24);
    let mut open = Vec::new();
    for step in 0..200_u32 {
        let text = run(100 * (step % 3), 4 + 4 * (step % 5));
        let found = cache.match_lock(NS, &text);
        let mut row = vec![0; text.len() / PAGE];
        let held = cache.fill_pages(found.handle, &mut row).unwrap();
        if cache.alloc(&mut row[held..]) {
            let done = cache.insert(found.handle, &text, &row).unwrap();
            cache.free(&done.duplicates, Some(u64::from(step))).unwrap();
            open.push(found.handle);
        } else {
            cache.release(found.handle, None).unwrap();
        }
        if open.len() > 2 {
            cache
                .release(open.remove(0), Some(u64::from(step)))
                .unwrap();
        }
        cache.retire(u64::from(step.saturating_sub(2)));
        pages(&cache); // adds up
        cache.check().unwrap();
    }
    cache.release_many(&open, None).unwrap();
    cache.retire(1000);
    let [free, evictable, protected, owned, deferred] = pages(&cache);
    assert_eq!(
        (free + evictable, protected, owned, deferred),
        (23, 0, 0, 0)
    );
}

#[test]
fn mllm_656_given_a_split_at_every_page_when_locked_and_released_then_evictable_is_exact() {
    for cut in 1..8 {
        let mut cache = cache(16);
        serve(&mut cache, NS, &run(0, 32));
        let long = cache.match_lock(NS, &run(0, 32));
        let short = cache.match_lock(NS, &run(0, 4 * cut));
        assert_eq!(pages(&cache), [7, 0, 8, 0, 0]);
        cache.release(long.handle, None).unwrap();
        let cut = cut as usize;
        assert_eq!(pages(&cache), [7, 8 - cut, cut, 0, 0]);
        cache.release(short.handle, None).unwrap();
        assert_eq!(pages(&cache), [7, 8, 0, 0, 0]);
        cache.check().unwrap();
    }
}

#[test]
fn sglang_36855_given_requests_that_never_publish_when_they_end_then_the_pool_is_whole() {
    let mut cache = cache(8);
    for _ in 0..100 {
        let found = cache.match_lock(NS, &run(0, 20));
        let mut row = [0; 5];
        for chunk in row.chunks_mut(2) {
            assert!(cache.alloc(chunk)); // chunk by chunk
        }
        cache.free(&row, None).unwrap();
        cache.release(found.handle, None).unwrap();
        assert_eq!(pages(&cache), [7, 0, 0, 0, 0]);
    }
}

#[test]
fn sglang_35635_given_a_partial_last_page_when_published_then_it_is_the_callers_and_not_cached() {
    let mut cache = cache(8);
    let found = cache.match_lock(NS, &run(0, 11));
    let mut row = [0; 3];
    assert!(cache.alloc(&mut row));
    assert_eq!(
        cache.insert(found.handle, &run(0, 11), &row).unwrap().held,
        2
    );
    assert_eq!(cache.peek(NS, &run(0, 11)), 8);
    assert_eq!(pages(&cache), [4, 0, 2, 1, 0]);
}

#[test]
fn sglang_38140_given_a_page_cached_by_another_when_published_then_ours_stays_ours_until_freed() {
    let mut cache = cache(8);
    let (one, two) = (
        cache.match_lock(NS, &run(0, 8)),
        cache.match_lock(NS, &run(0, 8)),
    );
    let (mut first, mut second) = ([0; 2], [0; 2]);
    assert!(cache.alloc(&mut first) && cache.alloc(&mut second));
    cache.insert(one.handle, &run(0, 8), &first).unwrap();
    let done = cache.insert(two.handle, &run(0, 8), &second).unwrap();
    // A batch that was built with `second` may still read it; nobody else can get it.
    assert_eq!(done.duplicates, second);
    assert_eq!(pages(&cache), [3, 0, 2, 2, 0]);
    cache.free(&done.duplicates, Some(9)).unwrap();
    assert!(!cache.alloc(&mut [0; 4]));
    cache.retire(9);
    assert!(cache.alloc(&mut [0; 4]));
}

#[test]
fn vllm_41400_first_given_pages_whose_step_still_runs_when_another_asks_then_they_are_not_visible()
{
    let mut cache = cache(8);
    let one = cache.match_lock(NS, &run(0, 8));
    let mut row = [0; 2];
    assert!(cache.alloc(&mut row));
    assert_eq!(cache.peek(NS, &run(0, 8)), 0); // the step writes them now
    cache.insert(one.handle, &run(0, 8), &row).unwrap(); // it has ended
    assert_eq!(cache.peek(NS, &run(0, 8)), 8);
}

#[test]
fn sglang_22337_given_one_insert_when_it_returns_then_the_handle_holds_all_without_another_match() {
    let mut cache = cache(16);
    let found = cache.match_lock(NS, &run(0, 32));
    let mut row = [0; 8];
    assert!(cache.alloc(&mut row));
    for computed in [8, 16, 32] {
        cache.insert(found.handle, &run(0, computed), &row).unwrap();
        let mut held = [0; 8];
        let n = cache.fill_pages(found.handle, &mut held).unwrap();
        assert_eq!(held[..n], row[..computed as usize / PAGE]);
    }
    assert_eq!(cache.stats().lookups, 1);
}
