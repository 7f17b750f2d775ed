from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pod_server import EnginePod

from rampway_operator.cluster import smoke as smoke_module
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.smoke import SmokeTests
from rampway_operator.cluster.warmup import Prompts, PromptSetInvalid, Tokens, Warmup, parse_prompts

TEN = Prompts(tuple({"prompt": f"p{n}", "max_tokens": 1} for n in range(10)))


@pytest.fixture
async def http() -> AsyncIterator[PodHttp]:
    opened = PodHttp(loopback_allowed=True)
    yield opened
    await opened.close()


async def no_counters(_ips: tuple[str, ...]) -> Tokens:
    return None


def warmup_of(http: PodHttp, engine: EnginePod, count=no_counters) -> Warmup:  # type: ignore[no-untyped-def]
    return Warmup(http, engine.port, ((engine.ip,), ()), count)


async def run_slice(warmup: Warmup, budget: int, prompts: Prompts = TEN) -> None:
    done = asyncio.Event()
    warmup.start(budget, prompts, done.set)
    await asyncio.wait_for(done.wait(), 10)


async def test_given_prompts_when_warmed_in_rounds_then_the_rate_rises_and_no_more_than_the_budget_is_sent(
    http: PodHttp,
) -> None:
    async with EnginePod() as engine:
        warmup = warmup_of(http, engine)
        for budget in (24, 14, 4):
            await run_slice(warmup, budget)
    assert warmup.progress.candidate_rounds == (0.0, 0.8)
    assert warmup.progress.requests_sent == len(engine.requests) == 24
    assert warmup.progress.prompts == 10
    assert warmup.progress.failures == 0
    assert engine.most_at_once <= 4


async def test_given_a_slice_that_ends_in_a_round_when_the_next_begins_then_the_round_goes_on(
    http: PodHttp,
) -> None:
    async with EnginePod() as engine:
        warmup = warmup_of(http, engine)
        await run_slice(warmup, 4)
        assert warmup.progress.candidate_rounds == ()
        await run_slice(warmup, 6)
    assert warmup.progress.candidate_rounds == (0.0,)
    assert [body["prompt"] for _, body in engine.requests] == [f"p{n}" for n in range(10)]


async def test_given_a_large_budget_when_a_round_ends_then_nothing_is_sent_before_somebody_decides(
    http: PodHttp,
) -> None:
    # What is sent after the caches are steady would count as users' requests in the judging windows.
    async with EnginePod() as engine:
        warmup = warmup_of(http, engine)
        await run_slice(warmup, 2000)
        assert len(engine.requests) == warmup.progress.requests_sent == 10
        assert warmup.progress.candidate_rounds == (0.0,)


async def test_given_two_arms_when_warmed_then_both_get_the_same_prompts_and_have_rates_of_their_own(
    http: PodHttp,
) -> None:
    async with EnginePod("127.0.0.2") as candidate:
        baseline = EnginePod("127.0.0.3")
        baseline.fixed_port = candidate.port
        async with baseline:
            baseline.seen = {body["prompt"] for body in TEN.bodies}
            warmup = Warmup(http, candidate.port, ((candidate.ip,), (baseline.ip,)), no_counters)
            await run_slice(warmup, 20)
    assert [b for _, b in candidate.requests] == [b for _, b in baseline.requests]
    assert warmup.progress.candidate_rounds == (0.0,)
    assert warmup.progress.baseline_rounds == (0.8,)


async def test_given_answers_without_cached_tokens_when_warmed_then_the_pods_counters_give_the_rate(
    http: PodHttp,
) -> None:
    async with EnginePod() as engine:
        engine.usage = False

        async def count(_ips: tuple[str, ...]) -> Tokens:
            return (float(engine.cached), float(engine.prompt))

        warmup = warmup_of(http, engine, count)
        await run_slice(warmup, 20)
        await run_slice(warmup, 10)
    assert warmup.progress.candidate_rounds == (0.0, 0.8)


async def test_given_neither_usage_nor_counters_when_warmed_then_no_rate_is_made_up(
    http: PodHttp,
) -> None:
    async with EnginePod() as engine:
        engine.usage = False
        warmup = warmup_of(http, engine)
        await run_slice(warmup, 20)
        await run_slice(warmup, 10)
    assert warmup.progress.candidate_rounds == ()
    assert warmup.progress.requests_sent == 20


async def test_given_an_engine_that_refuses_everything_when_warmed_then_it_stops_early_and_waits(
    http: PodHttp,
) -> None:
    async with EnginePod() as engine:
        engine.status = 500
        warmup = warmup_of(http, engine)
        await run_slice(warmup, 1000)
        assert warmup.progress.failures == warmup.progress.requests_sent == 4
        assert "HTTP 500" in warmup.progress.last_error
        warmup.start(1000, TEN, lambda: None)
        assert len(engine.requests) == 4


async def test_given_a_chat_without_a_model_when_sent_then_the_engines_model_is_asked_for(
    http: PodHttp,
) -> None:
    async with EnginePod() as engine:
        prompts = parse_prompts(
            "w", "k", {"k": '{"messages": []}\n\n{"prompt": "x", "model": "m"}'}
        )
        await run_slice(warmup_of(http, engine), 2, prompts)
    sent = dict(engine.requests)
    assert sent["/v1/chat/completions"]["model"] == "tiny"
    assert sent["/v1/completions"]["model"] == "m"
    assert sent["/v1/completions"]["stream"] is False


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({}, "ConfigMap w has no key k"),
        ({"k": ""}, "got no line"),
        ({"k": "\n \n"}, "got no line"),
        ({"k": "hello"}, "line 1: got no JSON"),
        ({"k": '{"prompt": "a"}\n[1]'}, "line 2: got list, need a JSON object"),
        ({"k": '{"prompt": "a", "messages": []}'}, "line 1: need exactly one of"),
        ({"k": "{}"}, "line 1: need exactly one of"),
        ({"k": "x\n" * 9}, "line 5: got no JSON, need one JSON object a line and 4 more"),
        ({"k": "[" * 100_000}, "line 1: got no JSON"),
    ],
)
def test_given_a_bad_prompt_set_when_parsed_then_every_bad_line_is_named(
    data: dict[str, str], fault: str
) -> None:
    with pytest.raises(PromptSetInvalid) as caught:
        parse_prompts("w", "k", data)
    assert fault in str(caught.value)


async def asked(smoke: SmokeTests, engine: EnginePod, uid: str = "u") -> None:
    done = asyncio.Event()
    smoke.start(uid, engine.ip, engine.port, done.set)
    await asyncio.wait_for(done.wait(), 10)


async def test_given_an_engine_that_answers_when_asked_for_a_token_then_it_passed(
    http: PodHttp,
) -> None:
    smoke = SmokeTests(http)
    async with EnginePod() as engine:
        await asked(smoke, engine)
        smoke.start("u", engine.ip, engine.port, lambda: None)
    assert smoke.passed == {"u"}
    assert smoke.errors == {}
    assert engine.requests == [
        ("/v1/completions", {"model": "tiny", "prompt": "Hello", "max_tokens": 1})
    ]


@pytest.mark.parametrize(
    "models", [{}, {"data": []}, {"data": [{}]}, {"data": [{"id": 3}]}, [], "x"]
)
async def test_given_an_engine_without_a_model_when_asked_then_it_failed_with_a_reason(
    http: PodHttp, models: object
) -> None:
    smoke = SmokeTests(http)
    async with EnginePod() as engine:
        engine.models = models
        await asked(smoke, engine)
    assert smoke.passed == set()
    assert smoke.errors["u"]


async def test_given_a_failure_when_asked_again_at_once_then_it_waits_and_later_passes(
    http: PodHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    smoke = SmokeTests(http)
    async with EnginePod() as engine:
        engine.status = 503
        await asked(smoke, engine)
        assert "HTTP 503" in smoke.errors["u"]
        smoke.start("u", engine.ip, engine.port, lambda: None)
        assert len(engine.requests) == 1
        engine.status = 200
        monkeypatch.setattr(smoke_module, "RETRY_SECONDS", 0.0)
        smoke._not_before.clear()
        await asked(smoke, engine)
    assert smoke.passed == {"u"}
    assert smoke.errors == {}


async def test_given_an_engine_that_wants_an_api_key_when_asked_then_its_readiness_has_to_do(
    http: PodHttp,
) -> None:
    smoke = SmokeTests(http)
    async with EnginePod() as engine:
        engine.status = 401
        await asked(smoke, engine)
    assert smoke.passed == {"u"}


async def test_given_a_pod_that_is_gone_when_forgotten_then_its_result_does_not_stay(
    http: PodHttp,
) -> None:
    smoke = SmokeTests(http)
    async with EnginePod() as engine:
        await asked(smoke, engine, "gone")
        await asked(smoke, engine, "of-another-object")
    smoke.keep_only(set(), {"gone"})
    assert smoke.passed == {"of-another-object"}
