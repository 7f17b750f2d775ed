"""What every prefix cache promises, whichever implementation runs."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from rampway_server.cache.protocol import (
    InvalidInputError,
    PageOwnershipError,
    PrefixCache,
    StaleHandleError,
)
from rampway_server.cache.select import open_cache

PAGE = 4
NS = b"tenant-a"


def build(kind: str, num_pages: int = 17, page_size: int = PAGE) -> PrefixCache:
    if kind == "rust":
        pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")
    return open_cache(kind, num_pages, page_size).cache


@pytest.fixture(params=["python", "rust", "off"])
def any_cache(request: pytest.FixtureRequest) -> PrefixCache:
    return build(request.param)


@pytest.fixture(params=["python", "rust"])
def cache(request: pytest.FixtureRequest) -> PrefixCache:
    return build(request.param)


def tokens(*ids: int) -> array[int]:
    return array("I", ids)


def run(n: int, first: int = 0) -> array[int]:
    return array("I", range(first, first + n))


def row(n: int = 16) -> np.ndarray:
    return np.full(n, -1, dtype=np.int32)


def publish(cache: PrefixCache, ids: array[int], ns: bytes = NS) -> list[int]:
    """Compute and cache all full pages of `ids`, as one request would; return its pages."""
    pages = row(len(ids) // PAGE)
    handle, matched = cache.match_lock(ns, ids)
    held = cache.fill_pages(handle, pages)
    assert held * PAGE == matched
    assert cache.alloc(len(pages) - held, pages, held)
    done = cache.insert(handle, ids, pages)
    assert done.held == len(pages)
    cache.fill_pages(handle, pages)
    cache.free(done.duplicates)
    cache.release(handle)
    cache.check()
    return pages.tolist()


def owners(cache: PrefixCache) -> tuple[int, ...]:
    s = cache.stats()
    assert s.free + s.evictable + s.protected + s.owned + s.deferred + s.reserved == s.total
    return (s.free, s.evictable, s.protected, s.owned, s.deferred)


def test_given_a_new_cache_when_counted_then_all_pages_but_the_reserved_one_are_free(any_cache):
    assert owners(any_cache) == (16, 0, 0, 0, 0)
    assert any_cache.available() == 16
    any_cache.check()


def test_given_a_published_prompt_when_matched_again_then_the_same_pages_come_back(cache):
    pages = publish(cache, run(12))
    out = row()
    handle, matched = cache.match_lock(NS, run(14))
    assert matched == 12
    assert cache.fill_pages(handle, out) == 3
    assert out[:4].tolist() == [*pages, -1]
    assert owners(cache) == (13, 0, 3, 0, 0)
    cache.release(handle)
    assert owners(cache) == (13, 3, 0, 0, 0)


def test_given_a_full_hit_when_limited_to_one_less_then_a_page_is_left_to_compute(cache):
    publish(cache, run(12))
    assert cache.match_lock(NS, run(12), 11).matched_tokens == 8
    assert cache.peek(NS, run(12), 11) == 8
    assert cache.peek(NS, run(12)) == 12


def test_given_two_namespaces_when_the_same_prompt_comes_then_nothing_is_shared(cache):
    publish(cache, run(8), b"a")
    assert cache.match_lock(b"b", run(8)).matched_tokens == 0
    assert cache.match_lock(b"", run(8)).matched_tokens == 0
    assert cache.match_lock(b"a", run(8)).matched_tokens == 8


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.int64])
def test_given_any_integer_width_when_matched_then_it_is_the_same_prompt(cache, dtype):
    publish(cache, run(8))
    ids = np.arange(8, dtype=dtype)
    assert cache.peek(NS, ids) == 8
    assert cache.peek(NS, memoryview(ids)) == 8
    assert cache.match_lock(NS, ids).matched_tokens == 8


def test_given_two_requests_computing_one_prompt_when_both_insert_then_the_second_gets_its_pages_back(
    cache,
):
    first, second = row(3), row(3)
    h1 = cache.match_lock(NS, run(12)).handle
    h2 = cache.match_lock(NS, run(12)).handle
    assert cache.alloc(3, first)
    assert cache.alloc(3, second)
    assert cache.insert(h1, run(12), first, 8) == (2, 2, [])
    done = cache.insert(h2, run(12), second)
    assert done == (3, 1, second[:2].tolist())
    assert cache.fill_pages(h2, second) == 3
    assert second[:2].tolist() == first[:2].tolist()
    cache.free(done.duplicates)
    assert owners(cache) == (12, 0, 3, 1, 0)
    cache.check()


def test_given_a_pool_too_small_when_allocating_then_nothing_is_evicted(cache):
    publish(cache, run(40))
    out = row(20)
    assert not cache.alloc(17, out)
    assert out.tolist() == [-1] * 20
    assert owners(cache) == (6, 10, 0, 0, 0)


def test_given_pages_needed_when_allocating_then_the_tail_of_the_oldest_prompt_goes_first(cache):
    publish(cache, run(32))
    publish(cache, run(32, first=100))
    assert cache.alloc(3, row())
    assert cache.peek(NS, run(32)) == 20
    assert cache.peek(NS, run(32, first=100)) == 32


def test_given_a_locked_prefix_when_everything_is_evicted_then_exactly_the_prefix_stays(cache):
    publish(cache, run(32))
    handle, _ = cache.match_lock(NS, run(9))
    assert cache.evict(100) == 6
    assert cache.clear() == 0
    assert cache.peek(NS, run(32)) == 8
    cache.release(handle)
    assert cache.clear() == 2
    assert owners(cache) == (16, 0, 0, 0, 0)


def test_given_a_release_behind_a_fence_when_the_step_retires_then_the_lock_ends(cache):
    publish(cache, run(8))
    handle, _ = cache.match_lock(NS, run(8))
    cache.release(handle, 7)
    with pytest.raises(StaleHandleError):
        cache.release(handle)
    assert cache.evict(9) == 0
    assert cache.retire(6) == 0
    assert cache.evict(9) == 0
    assert cache.retire(7) == 0
    assert cache.evict(9) == 2
    cache.check()


def test_given_pages_freed_behind_a_fence_when_the_step_retires_then_they_are_free(any_cache):
    out = row(4)
    assert any_cache.alloc(4, out)
    any_cache.free(out[:3], 5)
    assert owners(any_cache) == (12, 0, 0, 1, 3)
    assert not any_cache.alloc(13, row())
    assert any_cache.retire(5) == 3
    any_cache.free(out[3:], 4)
    assert owners(any_cache) == (16, 0, 0, 0, 0)
    any_cache.check()


def test_given_a_released_handle_when_used_then_it_is_stale_and_nothing_changes(any_cache):
    handle, _ = any_cache.match_lock(NS, run(8))
    any_cache.release(handle)
    before = any_cache.stats()
    for misuse in (
        lambda: any_cache.release(handle),
        lambda: any_cache.fill_pages(handle, row()),
        lambda: any_cache.insert(handle, run(8), row()),
        lambda: any_cache.release(0),
        lambda: any_cache.release(2**63),
    ):
        with pytest.raises(StaleHandleError, match="handle is not live"):
            misuse()
    assert any_cache.stats() == before
    any_cache.check()


@pytest.mark.parametrize("bad", [[0], [1, 1], [16], [99], [-1], [5]])
def test_given_pages_that_are_not_the_callers_when_freed_then_refused(any_cache, bad):
    out = row(3)
    assert any_cache.alloc(3, out)
    assert out.tolist() == [1, 2, 3]
    before = any_cache.stats()
    with pytest.raises(PageOwnershipError):
        any_cache.free(bad)
    assert any_cache.stats() == before
    any_cache.check()


def test_given_cached_pages_when_freed_or_inserted_again_then_refused(cache):
    pages = publish(cache, run(8))
    with pytest.raises(PageOwnershipError, match="tree"):
        cache.free(pages)
    handle, _ = cache.match_lock(NS, run(8, first=50))
    with pytest.raises(PageOwnershipError, match="tree"):
        cache.insert(handle, run(8, first=50), pages)
    cache.release(handle)
    assert owners(cache) == (14, 2, 0, 0, 0)
    cache.check()


def test_given_unusable_buffers_when_passed_then_refused_by_name(cache):
    handle, _ = cache.match_lock(NS, run(8))
    pages = row(2)
    assert cache.alloc(2, pages)
    before = cache.stats()
    for misuse in (
        lambda: cache.match_lock(NS, [1, 2, 3]),
        lambda: cache.match_lock(NS, np.zeros(4, dtype=np.float32)),
        lambda: cache.match_lock(NS, np.zeros(4, dtype=np.int16)),
        lambda: cache.match_lock(NS, np.zeros((2, 2), dtype=np.int32)),
        lambda: cache.match_lock(NS, np.zeros(8, dtype=np.int32)[::2]),
        lambda: cache.match_lock(NS, run(4), -1),
        lambda: cache.alloc(-1, row()),
        lambda: cache.alloc(2, row(1)),
        lambda: cache.alloc(1, row(1), 1),
        lambda: cache.alloc(1, row(1), -1),
        lambda: cache.alloc(1, np.zeros(4, dtype=np.int64)),
        lambda: cache.alloc(1, [0, 0]),
        lambda: cache.alloc(1, bytes(16)),
        lambda: cache.evict(-1),
        lambda: cache.retire(-1),
        lambda: cache.free(pages, -1),
        lambda: cache.insert(handle, run(12), pages),
        lambda: cache.insert(handle, np.array([-1] * 8, dtype=np.int32), pages),
        lambda: cache.insert(handle, np.array([2**31] * 8, dtype=np.uint32), pages),
        lambda: cache.insert(handle, np.array([2**40] * 8, dtype=np.int64), pages),
    ):
        with pytest.raises(InvalidInputError):
            misuse()
    assert cache.stats() == before
    cache.check()


@pytest.mark.parametrize(
    "shape", [(1, 16), (0, 16), (-1, 16), (2**31, 16), (8, 0), (8, 3), (8, -4)]
)
@pytest.mark.parametrize("kind", ["python", "rust", "off"])
def test_given_an_impossible_shape_when_built_then_refused(kind, shape):
    with pytest.raises(InvalidInputError, match=r"num_pages|page_size"):
        build(kind, *shape)


def test_given_no_reuse_when_a_prompt_repeats_then_lookups_count_and_nothing_matches():
    cache = build("off")
    pages = row(2)
    handle, matched = cache.match_lock(NS, run(8), 7)
    assert (matched, cache.fill_pages(handle, pages)) == (0, 0)
    assert cache.alloc(2, pages)
    assert cache.insert(handle, run(8), pages) == (0, 0, [])
    cache.free(pages)
    cache.release(handle)
    assert cache.match_lock(NS, run(8), 7).matched_tokens == 0
    stats = cache.stats()
    assert (stats.lookups, stats.queried_tokens, stats.matched_tokens) == (2, 14, 0)


def test_given_many_tenants_when_all_leave_then_no_namespace_is_kept():
    cache = build("python")
    for tenant in range(50):
        publish(cache, run(8), f"tenant-{tenant}".encode())
    cache.clear()
    assert cache._roots == {}


def test_given_a_quota_when_a_namespace_publishes_more_then_its_own_oldest_pages_go(cache):
    other = publish(cache, run(12, first=500), b"other")
    publish(cache, run(12))
    assert cache.set_quota(NS, 3) == 0
    publish(cache, run(8, first=100))
    assert cache.quota(NS) == (3, 3)
    assert (cache.peek(NS, run(12)), cache.peek(NS, run(8, first=100))) == (4, 8)
    assert cache.peek(b"other", run(12, first=500)) == 4 * len(other)
    assert cache.set_quota(NS, 1) == 2
    assert cache.set_quota(NS, None) == 0
    assert cache.quota(NS) is None
    cache.check()


def test_given_a_quota_of_protected_pages_when_more_is_published_then_the_rest_stays_the_callers(
    cache,
):
    cache.set_quota(NS, 2)
    pages = row(4)
    handle, _ = cache.match_lock(NS, run(16))
    assert cache.alloc(4, pages)
    assert cache.insert(handle, run(16), pages) == (2, 2, [])
    assert cache.insert(handle, run(16), pages) == (2, 0, [])
    assert owners(cache) == (12, 0, 2, 2, 0)
    cache.free(pages[2:])
    cache.release(handle)
    cache.check()


@pytest.mark.parametrize("policy", ["lfu", "slru"])
@pytest.mark.parametrize("kind", ["python", "rust"])
def test_given_a_text_that_was_found_when_many_new_ones_come_then_it_outlives_them(kind, policy):
    if kind == "rust":
        pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")
    cache = open_cache(kind, 9, PAGE, policy=policy).cache
    publish(cache, run(8))
    publish(cache, run(8))
    for i in range(10):
        publish(cache, run(12, first=1000 * (i + 1)))
    assert cache.peek(NS, run(8)) == 8


def test_given_a_pin_when_everything_is_evicted_then_its_prefix_stays_until_the_deadline(cache):
    publish(cache, run(16))
    pin = cache.pin(NS, run(16), 60, limit=9)
    assert pin is not None
    assert pin.tokens == 8
    assert (cache.evict(99), cache.stats().pinned_pages) == (2, 2)
    assert (cache.expire_pins(59), cache.expire_pins(60), cache.unpin(pin.id)) == (0, 1, False)
    assert cache.evict(99) == 2


def test_given_no_reuse_when_the_rest_of_the_contract_is_used_then_it_does_nothing(any_cache):
    found = any_cache.match_lock_many([(NS, run(8), None), (b"", run(8), 3)])
    any_cache.prioritize(found[0].handle, 3)
    assert any_cache.pin(NS, run(8), 10) is None
    assert (any_cache.unpin(1), any_cache.expire_pins(9)) == (False, 0)
    any_cache.set_pin_quota(3)
    any_cache.set_quota(NS, 0)
    any_cache.enable_events(8)
    any_cache.drain_events()
    any_cache.disable_events()
    assert any_cache.drain_events() == ([], 0)
    with pytest.raises(StaleHandleError):
        any_cache.release_many([found[0].handle, found[0].handle])
    any_cache.release_many([match.handle for match in found])
    assert any_cache.stats().handles == 0
    any_cache.check()
