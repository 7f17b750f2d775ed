"""What the extension offers beyond the scheduler's contract: batches, pins, priorities, events."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

native = pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")

NS = b"tenant"


def ids(n: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.int32)


def publish(cache, tokens: np.ndarray, priority: int = 0) -> None:
    row = np.zeros(len(tokens) // cache.page_size, dtype=np.int32)
    handle, _ = cache.match_lock(NS, tokens)
    held = cache.fill_pages(handle, row)
    cache.prioritize(handle, priority)
    assert cache.alloc(len(row) - held, row, held)
    cache.insert(handle, tokens, row)
    cache.release(handle)


@pytest.fixture
def cache():
    return native.PrefixCache(33, 4)


def test_given_several_requests_when_matched_in_one_call_then_as_if_one_by_one(cache):
    publish(cache, ids(8))
    found = cache.match_lock_many([(NS, ids(9), None), (NS, ids(8), 7), (b"", ids(8), None)])
    assert [matched for _, matched in found] == [8, 4, 0]
    cache.release_many([handle for handle, _ in found])
    assert cache.stats().handles == 0
    cache.check()


def test_given_a_bad_request_in_a_batch_when_matched_then_none_is_locked(cache):
    with pytest.raises(native.InvalidInputError, match="tokens is not a buffer"):
        cache.match_lock_many([(NS, ids(9), None), (NS, [1, 2], None)])
    assert cache.stats().lookups == 0


def test_given_a_stale_handle_in_a_batch_when_released_then_none_is_released(cache):
    handle, _ = cache.match_lock(NS, ids(8))
    for bad in ([handle, handle], [handle, 0], [handle, -1], [handle, 2**70]):
        with pytest.raises(native.StaleHandleError):
            cache.release_many(bad)
    assert cache.stats().handles == 1
    cache.release_many([handle])


def test_given_a_pin_when_everything_is_evicted_then_it_stays_until_its_deadline(cache):
    publish(cache, ids(8))
    pin, tokens = cache.pin(NS, ids(8), 60, limit=5)
    assert tokens == 4
    assert cache.pin(b"", ids(8), 60) is None
    assert (cache.evict(9), cache.stats().pinned_pages) == (1, 1)
    assert (cache.expire_pins(59), cache.expire_pins(60), cache.unpin(pin)) == (0, 1, False)
    assert cache.evict(9) == 1


def test_given_a_quota_when_pins_would_keep_more_then_refused(cache):
    publish(cache, ids(16))
    cache.set_pin_quota(3)
    with pytest.raises(native.InvalidInputError, match="over the quota: got 4 pages"):
        cache.pin(NS, ids(16), 60)
    assert cache.stats().pins == 0


def test_given_priorities_when_evicted_then_the_lowest_goes_first():
    cache = native.PrefixCache(33, 4, "priority")
    publish(cache, ids(8), priority=9)
    publish(cache, ids(8, first=100))
    cache.evict(2)
    assert (cache.peek(NS, ids(8)), cache.peek(NS, ids(8, first=100))) == (8, 0)


def test_given_an_unknown_policy_when_built_then_the_choices_are_named():
    with pytest.raises(native.InvalidInputError, match="need lru, lfu, slru or priority"):
        native.PrefixCache(33, 4, "random")


def test_given_events_when_drained_then_they_have_the_shape_routers_read(cache):
    cache.enable_events(10)
    publish(cache, ids(8))
    publish(cache, ids(12))
    cache.evict(1)
    events, lost = cache.drain_events()
    assert lost == 0
    cleared, first, second, removed = events
    assert cleared == ("AllBlocksCleared",)
    kind, blocks, parent, tokens, size, namespace = first
    assert (kind, parent, tokens, size, namespace) == ("BlockStored", None, list(range(8)), 4, NS)
    assert second[2] == blocks[1]
    assert removed == ("BlockRemoved", second[1])
    cache.disable_events()
    assert cache.drain_events() == ([], 0)


def test_given_a_wrong_type_when_passed_then_a_type_error_and_no_change(cache):
    for misuse in (
        lambda: cache.match_lock("tenant", ids(8)),
        lambda: cache.match_lock(NS, ids(8), "7"),
        lambda: cache.release("x"),
        lambda: cache.release(None),
        lambda: cache.alloc(1.5, ids(8)),
        lambda: cache.release_many(7),
    ):
        with pytest.raises(TypeError):
            misuse()
    assert cache.stats().lookups == 0
    cache.check()


def test_given_a_buffer_in_use_when_the_call_ends_then_it_is_released(cache):
    tokens = bytearray(ids(8).tobytes())
    view = memoryview(tokens).cast("i")
    before = sys.getrefcount(view)
    handle, _ = cache.match_lock(NS, view)
    with pytest.raises(native.StaleHandleError):
        cache.insert(handle + 1, view, [])
    assert sys.getrefcount(view) == before
    view.release()
    tokens.extend(b"more")


def test_given_foreign_byte_order_when_passed_then_refused(cache):
    with pytest.raises(native.InvalidInputError, match="wrong type"):
        cache.match_lock(NS, ids(8).astype(">i4"))


def test_given_unaligned_memory_when_passed_then_refused(cache):
    shifted = np.frombuffer(bytearray(33), dtype=np.int8)[1:].view(np.int32)
    with pytest.raises(native.InvalidInputError, match="unaligned"):
        cache.match_lock(NS, shifted)


def test_given_an_empty_prompt_when_served_then_nothing_happens(cache):
    for empty in (ids(0), memoryview(b"").cast("i"), np.zeros(0, dtype=np.int64)):
        handle, matched = cache.match_lock(NS, empty)
        assert (matched, cache.fill_pages(handle, ids(0))) == (0, 0)
        assert cache.insert(handle, empty, []) == (0, 0, [])
        cache.release(handle)
    assert cache.alloc(0, ids(0))
    cache.check()


def test_given_threads_when_all_use_one_cache_then_it_stays_whole(cache):
    def use(first: int) -> None:
        for i in range(200):
            publish(cache, ids(4 + i % 8, first=first))

    threads = [threading.Thread(target=use, args=(n * 1000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.check()
    assert cache.stats().owned == 0
