"""`kubectl rampway explain`: every verdict that was ever stored follows from its evidence, digit by digit."""

from __future__ import annotations

from typing import Any

from world_builders import World, world

from rampway_operator.cli.explain import Explanation, explanation
from rampway_operator.core.state import Phase


def explained(w: World) -> Explanation:
    return explanation({**w.raw, "status": w.status})


def test_given_a_whole_rollout_then_each_stored_verdict_is_recomputed_identically() -> None:
    w = world().deploy()
    w.set_image("v2")
    lines: list[Any] = []

    def promoted(now: World) -> bool:
        told = explained(now)
        assert told.agrees, [line.differences for line in told.lines]
        lines.extend(line for line in told.lines if line.estimate is not None)
        return now.phase is Phase.BAKING

    w.run(7200, promoted)
    assert {line.stored for line in lines} >= {"Pass", "Undecided"}


def test_given_a_stored_number_that_was_changed_then_it_is_found_and_both_are_told() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.run(7200, lambda now: any(line.low is not None for line in explained(now).lines))
    record = next(r for r in w.status["rollout"]["verdicts"] if "estimate" in r)
    record["estimate"] = "0.123"
    told = explained(w)
    assert not told.agrees
    [line] = [line for line in told.lines if line.differences]
    assert line.objective == record["objective"]
    assert line.differences[0].startswith("estimate stored 0.123, recomputed ")
