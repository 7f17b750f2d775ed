"""The Rust cache and the Python one do the same, page for page, whatever is asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rampway_server.cache.protocol import POLICIES, CacheError
from rampway_server.cache.select import open_cache

pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")

PAGES = 20
PAGE = 2
TEXTS = st.lists(st.integers(0, 1), max_size=24).map(lambda ids: np.array(ids, dtype=np.int32))
FENCES = st.none() | st.integers(0, 12)
NAMESPACES = st.sampled_from([b"", b"a", b"tenant"])


@dataclass
class Request:
    """One request as a scheduler keeps it, with the same row in both caches."""

    handles: tuple[int, int]
    tokens: np.ndarray
    row: np.ndarray
    used: int
    held: int = 0
    published: list[int] = field(default_factory=list)


class TwoCaches(RuleBasedStateMachine):
    """Drive both caches as a scheduler does, and compare all they say."""

    @initialize(policy=st.sampled_from(POLICIES), events=st.booleans())
    def begin(self, policy, events):
        self.caches = tuple(
            open_cache(kind, PAGES, PAGE, policy=policy).cache for kind in ("python", "rust")
        )
        self.running: list[Request] = []
        self.pins: list[int] = []
        if events:
            self.both(lambda c: c.enable_events(1000))

    def both(self, ask):
        """Ask both; they answer, or refuse, alike."""
        answers = []
        for cache in self.caches:
            try:
                answers.append(ask(cache))
            except CacheError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return answers[0]

    def rows(self, ask, size: int) -> tuple[object, np.ndarray]:
        """Ask both to write a row; the rows are alike too."""
        rows = [np.full(size, -1, dtype=np.int32) for _ in self.caches]
        answers = [ask(c, r) for c, r in zip(self.caches, rows, strict=True)]
        assert answers[0] == answers[1]
        assert rows[0].tolist() == rows[1].tolist()
        return answers[0], rows[0]

    @rule(
        ns=NAMESPACES, tokens=TEXTS, limit=st.none() | st.integers(0, 30), extra=st.integers(0, 2)
    )
    def start(self, ns, tokens, limit, extra):
        found = [cache.match_lock(ns, tokens, limit) for cache in self.caches]
        assert found[0].matched_tokens == found[1].matched_tokens
        handles = (found[0].handle, found[1].handle)
        live = dict(zip(self.caches, handles, strict=True))
        used = len(tokens) // PAGE + extra
        held, row = self.rows(lambda c, out: c.fill_pages(live[c], out), PAGES)
        assert held * PAGE == found[0].matched_tokens
        need = max(0, used - held)
        fits, fresh = self.rows(lambda c, out: c.alloc(need, out, held), PAGES)
        if not fits:
            for cache, handle in live.items():
                cache.release(handle)
            return
        row[held : held + need] = fresh[held : held + need]
        self.running.append(Request(handles, tokens, row, held + need, held))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), more=TEXTS, limit=st.none() | st.integers(0, 30))
    def publish(self, data, more, limit):
        request = data.draw(st.sampled_from(self.running))
        live = dict(zip(self.caches, request.handles, strict=True))
        tokens = np.concatenate([request.tokens[: request.held * PAGE], more])
        pages = request.row[: request.used]
        done = self.both(lambda c: c.insert(live[c], tokens, pages, limit))
        if isinstance(done, type):
            return
        request.tokens = tokens
        request.held = done.held
        self.both(lambda c: c.free(done.duplicates))
        _, row = self.rows(lambda c, out: c.fill_pages(live[c], out), PAGES)
        request.row[: done.held] = row[: done.held]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fence=FENCES)
    def end(self, data, fence):
        request = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        live = dict(zip(self.caches, request.handles, strict=True))
        own = request.row[request.held : request.used]
        self.both(lambda c: c.free(own, fence))
        self.both(lambda c: c.release(live[c], fence))
        self.both(lambda c: c.release(live[c], fence))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), priority=st.integers(-1, 70))
    def prioritize(self, data, priority):
        request = data.draw(st.sampled_from(self.running))
        live = dict(zip(self.caches, request.handles, strict=True))
        self.both(lambda c: c.prioritize(live[c], priority))

    @rule(ns=NAMESPACES, tokens=TEXTS, deadline=st.integers(-1, 9), limit=st.integers(0, 30))
    def pin(self, ns, tokens, deadline, limit):
        pin = self.both(lambda c: c.pin(ns, tokens, deadline, limit))
        if pin is not None and not isinstance(pin, type):
            self.pins.append(pin.id)

    @rule(data=st.data(), now=st.integers(-1, 9), quota=st.integers(-1, 8))
    def let_pins_go(self, data, now, quota):
        if self.pins:
            pin = data.draw(st.sampled_from(self.pins))
            self.both(lambda c: c.unpin(pin))
        self.both(lambda c: c.expire_pins(now))
        self.both(lambda c: c.set_pin_quota(quota))

    @rule(ns=NAMESPACES, pages=st.none() | st.integers(-1, 8))
    def limit_a_namespace(self, ns, pages):
        self.both(lambda c: c.set_quota(ns, pages))
        self.both(lambda c: c.quota(ns))

    @rule(step=st.integers(-1, 12))
    def retire(self, step):
        self.both(lambda c: c.retire(step))

    @rule(n=st.integers(-1, 6))
    def evict(self, n):
        self.both(lambda c: c.evict(n))

    @rule()
    def clear(self):
        self.both(lambda c: c.clear())

    @rule(ns=NAMESPACES, tokens=TEXTS, limit=st.none() | st.integers(-1, 30))
    def peek(self, ns, tokens, limit):
        self.both(lambda c: c.peek(ns, tokens, limit))

    @rule(pages=st.lists(st.integers(-1, PAGES), max_size=3), fence=FENCES)
    def free_what_is_not_ours(self, pages, fence):
        owned = {p for r in self.running for p in r.row[r.held : r.used].tolist()}
        if pages and not owned.issuperset(pages):
            self.both(lambda c: c.free(pages, fence))

    @invariant()
    def agree(self):
        self.both(lambda c: c.stats())
        self.both(lambda c: c.drain_events())
        for ns in (b"", b"a", b"tenant"):
            self.both(lambda c, ns=ns: c.quota(ns))
        self.both(lambda c: c.available())
        for cache in self.caches:
            cache.check()
        stats = self.caches[0].stats()
        assert stats.owned == sum(r.used - r.held for r in self.running)


TwoCaches.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTwoCaches = TwoCaches.TestCase
