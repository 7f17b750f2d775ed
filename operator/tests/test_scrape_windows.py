from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from pod_server import EnginePod

from rampway_operator.cluster import metric_sources
from rampway_operator.cluster.metric_sources import MetricSources, read_pods
from rampway_operator.cluster.metrics import WindowMemory, read_window
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.core.observed import Arm, Pod, Pool
from rampway_operator.core.spec import Engine, Metric, Objective, Spec

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
STEP = timedelta(seconds=15)


@pytest.fixture
def sources(http: PodHttp) -> MetricSources:
    return MetricSources(http)


@pytest.fixture
async def http() -> AsyncIterator[PodHttp]:
    opened = PodHttp(loopback_allowed=True)
    yield opened
    await opened.close()


def spec_for(pod: EnginePod, **changes: object) -> Spec:
    return Spec(engine=Engine(image="x", metrics_port=pod.port), **changes)  # type: ignore[arg-type]


def pod_of(
    engine: EnginePod, name: str, arm: Arm, *, in_rotation: bool = True, ip: str = ""
) -> Pod:
    return Pod(
        name=name,
        uid=f"uid-{name}",
        hash="a" * 10,
        pool=Pool.MAIN,
        resource_version="1",
        created_at=START,
        arm=arm,
        ip=ip or engine.ip,
        ready=True,
        in_rotation=in_rotation,
    )


def counters(requests: int, *, errors: int = 0) -> str:
    buckets = "".join(
        f'rampway_ttft_seconds_bucket{{le="{edge}"}} {requests}\n'
        for edge in ("0.1", "1.0", "+Inf")
    )
    return (
        f'rampway_requests_total{{outcome="ok"}} {requests}\n'
        f'rampway_requests_total{{outcome="error"}} {errors}\n'
        f"rampway_prompt_tokens_total {requests * 100}\n"
        f"rampway_cached_tokens_total {requests * 50}\n{buckets}"
        f"rampway_ttft_seconds_sum {requests}\nrampway_ttft_seconds_count {requests}\n"
    )


async def test_given_two_readings_when_paired_then_one_window_with_the_increases(
    sources: MetricSources,
) -> None:
    async with EnginePod() as engine:
        pods = [pod_of(engine, "c", Arm.CANDIDATE), pod_of(engine, "s", Arm.STABLE)]
        memory, spec = WindowMemory(), spec_for(engine)
        engine.metrics_text = counters(100)
        first, _ = await read_window(sources, memory, spec, "default", pods, START)
        engine.metrics_text = counters(130, errors=2)
        second, status = await read_window(sources, memory, spec, "default", pods, START + STEP)
    assert first == ()
    assert len(second) == 1
    assert second[0].candidate.requests == 32
    assert second[0].candidate.errors == 2
    assert second[0].stable is not None
    assert second[0].stable.cached_tokens == 1500
    assert status.error == status.dropped == ""


async def test_given_a_window_not_yet_stored_when_looking_again_then_it_comes_again_unchanged(
    sources: MetricSources,
) -> None:
    async with EnginePod() as engine:
        pods, memory, spec = [pod_of(engine, "c", Arm.CANDIDATE)], WindowMemory(), spec_for(engine)
        engine.metrics_text = counters(100)
        await read_window(sources, memory, spec, "default", pods, START)
        engine.metrics_text = counters(130)
        offered, _ = await read_window(sources, memory, spec, "default", pods, START + STEP)
        engine.metrics_text = counters(190)
        again, _ = await read_window(
            sources, memory, spec, "default", pods, START + STEP + timedelta(seconds=1)
        )
        memory.stored()
        between, _ = await read_window(
            sources, memory, spec, "default", pods, START + STEP + timedelta(seconds=2)
        )
        later, _ = await read_window(sources, memory, spec, "default", pods, START + 2 * STEP)
    assert again == offered
    assert between == ()
    assert later[0].candidate.requests == 60


async def test_given_looks_more_often_than_the_interval_when_reading_then_pods_are_read_once_an_interval(
    sources: MetricSources,
) -> None:
    reads = itertools.count()
    async with EnginePod() as engine:

        async def counting(_: web.Request) -> web.Response:
            next(reads)
            return web.Response(text=counters(1))

        engine.metrics_handler = counting
        memory, pods = WindowMemory(), [pod_of(engine, "c", Arm.CANDIDATE)]
        for second in range(60):
            await read_window(
                sources,
                memory,
                spec_for(engine),
                "default",
                pods,
                START + timedelta(seconds=second),
            )
            memory.stored()
    assert next(reads) == 4


async def test_given_a_pod_that_gives_no_metrics_when_reading_then_an_error_and_no_window(
    sources: MetricSources,
) -> None:
    async with EnginePod() as engine, EnginePod("127.0.0.2") as other:
        pods = [pod_of(engine, "c", Arm.CANDIDATE), pod_of(other, "s", Arm.STABLE, ip="127.0.0.9")]
        memory, spec = WindowMemory(), spec_for(engine)
        engine.metrics_text = counters(100)
        windows, status = await read_window(sources, memory, spec, "default", pods, START)
    assert windows == ()
    assert "1 of 2 pods gave no metrics: pod s: " in status.error


async def test_given_one_missed_reading_when_the_next_works_then_the_window_spans_both(
    sources: MetricSources,
) -> None:
    async with EnginePod() as engine:
        pods, memory, spec = [pod_of(engine, "c", Arm.CANDIDATE)], WindowMemory(), spec_for(engine)
        engine.metrics_text = counters(100)
        await read_window(sources, memory, spec, "default", pods, START)
        engine.metrics_text = "not metrics at all {"
        _, status = await read_window(sources, memory, spec, "default", pods, START + STEP)
        engine.metrics_text = counters(160)
        windows, _ = await read_window(sources, memory, spec, "default", pods, START + 2 * STEP)
    assert status.error
    assert windows[0].candidate.requests == 60


async def test_given_a_pod_that_enters_rotation_when_reading_then_the_window_is_dropped_with_a_reason(
    sources: MetricSources,
) -> None:
    async with EnginePod() as engine:
        memory, spec = WindowMemory(), spec_for(engine)
        engine.metrics_text = counters(100)
        pods = [pod_of(engine, "c", Arm.CANDIDATE)]
        await read_window(sources, memory, spec, "default", pods, START)
        pods.append(pod_of(engine, "c2", Arm.CANDIDATE))
        windows, status = await read_window(sources, memory, spec, "default", pods, START + STEP)
        following, _ = await read_window(sources, memory, spec, "default", pods, START + 2 * STEP)
    assert windows == ()
    assert "changed" in status.dropped
    assert len(following) == 1


async def test_given_a_candidate_out_of_rotation_when_reading_then_no_window_but_missing_metrics_show(
    sources: MetricSources,
) -> None:
    objective = Objective(name="e2e", metric=Metric.E2E_LATENCY)
    async with EnginePod() as engine:
        spec = spec_for(engine)
        spec = Spec(engine=spec.engine, analysis=type(spec.analysis)(objectives=(objective,)))
        engine.metrics_text = counters(100)
        pods = [
            pod_of(engine, "c", Arm.CANDIDATE, in_rotation=False),
            pod_of(engine, "s", Arm.STABLE),
        ]
        windows, status = await read_window(sources, WindowMemory(), spec, "default", pods, START)
    assert windows == ()
    assert len(status.missing_metrics) == 1
    assert "e2e" in status.missing_metrics[0]


def big(_: web.Request) -> web.Response:
    return web.Response(text="# x\n" * (2 * 1024 * 1024))


def zipped(_: web.Request) -> web.Response:
    headers = {"Content-Encoding": "gzip"}
    return web.Response(body=gzip.compress(b"0" * 50_000_000), headers=headers)


def redirected(_: web.Request) -> web.Response:
    raise web.HTTPFound("http://169.254.169.254/latest/meta-data")


def failing(_: web.Request) -> web.Response:
    return web.Response(status=500, text="stack trace")


def binary(_: web.Request) -> web.Response:
    return web.Response(body=bytes(range(256)))


def text(content: str):  # type: ignore[no-untyped-def]
    return lambda _: web.Response(text=content)


@pytest.mark.parametrize(
    "answer",
    [
        big,
        zipped,
        redirected,
        failing,
        binary,
        text("rampway_prompt_tokens_total NaN\n"),
        text("rampway_prompt_tokens_total +Inf\n"),
        text("rampway_prompt_tokens_total -1\n"),
        text("rampway_requests_total 1\nrampway_requests_total 1\n"),
        text('rampway_requests_total{outcome="ok"\n'),
        text('rampway_requests_total{outcome="ok"} \n'),
        text("rampway_requests_total one\n"),
        text("{}{}{} = \\\n"),
        text('rampway_ttft_seconds_bucket{le="x"} 1\n'),
        text('rampway_ttft_seconds_bucket{le="1"} 5\nrampway_ttft_seconds_bucket{le="+Inf"} 4\n'),
        text(
            "# TYPE rampway_requests_total\n# TYPE a b c d\n# HELP\nrampway_requests_total{} {} 1\n"
        ),
        text("\x00\x00\x00"),
        text("".join(f'rampway_requests_total{{id="{n}"}} 1\n' for n in range(10_001))),
    ],
)
async def test_given_a_hostile_answer_when_reading_then_it_is_a_fault_and_never_a_value(
    http: PodHttp, answer: object
) -> None:
    async with EnginePod() as engine:

        async def handler(request: web.Request) -> web.StreamResponse:
            return answer(request)  # type: ignore[operator,no-any-return]

        engine.metrics_handler = handler
        pods = [pod_of(engine, "c", Arm.CANDIDATE)]
        found, faults = await read_pods(http, spec_for(engine), pods, START)
    assert found == {}
    assert list(faults) == ["uid-c"]
    assert len(faults["uid-c"]) < 600
    assert "stack trace" not in faults["uid-c"]


async def test_given_a_pod_that_drips_when_reading_then_it_is_given_up_after_the_timeout(
    http: PodHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_sources, "SCRAPE_SECONDS", 0.3)
    async with EnginePod() as engine:

        async def drip(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(100):
                await response.write(b"#")
                await asyncio.sleep(0.05)
            return response

        engine.metrics_handler = drip
        began = asyncio.get_running_loop().time()
        _, faults = await read_pods(
            http, spec_for(engine), [pod_of(engine, "c", Arm.CANDIDATE)], START
        )
        took = asyncio.get_running_loop().time() - began
    assert "no answer in 0.3 s" in faults["uid-c"]
    assert took < 2.0


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "224.0.0.1",
        "metadata",
        "1.1.1.1 @x",
        "[::]",
        "2130706433",
        "",
    ],
)
async def test_given_an_address_outside_the_pod_network_when_reading_then_nothing_is_sent(
    ip: str,
) -> None:
    strict = PodHttp()
    async with EnginePod() as engine:
        pod = pod_of(engine, "c", Arm.CANDIDATE, ip=ip or " ")
        found, faults = await read_pods(strict, spec_for(engine), [pod], START)
    await strict.close()
    assert found == {}
    assert faults["uid-c"].startswith("pod c: pod IP: got")
