"""Whatever a metrics source answers about the candidate: nothing promotes it, nothing fails it."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
from aiohttp import web
from metric_payloads import Change, Line, Scene, lines

from rampway_operator.cluster import metric_sources, prometheus
from rampway_operator.core.state import Verdict

BOTH = pytest.mark.parametrize("through", ["direct", "prometheus"])


def value(name: str, text: str) -> Change:
    """Every line of this name has this value."""
    return lambda sample, _: [(n, k, text if n == name else v) for n, k, v in sample]


def without(*names: str) -> Change:
    return lambda sample, _: [line for line in sample if not line[0].startswith(names)]


def plus(*more: Line) -> Change:
    return lambda sample, _: [*sample, *more]


def edge(old: str, new: str) -> Change:
    """The bucket with the edge `old` has the edge `new`."""

    def change(sample: list[Line], _: int) -> list[Line]:
        return [(n, k | {"le": new} if k.get("le") == old else k, v) for n, k, v in sample]

    return change


def counts_down(sample: list[Line], reading: int) -> list[Line]:
    return lines(100 - reading)


def restarts_each_time(sample: list[Line], reading: int) -> list[Line]:
    return value("process_start_time_seconds", str(1_700_000_000 + reading))(sample, reading)


def every_other_reset(sample: list[Line], reading: int) -> list[Line]:
    return lines(reading if reading % 2 else 0)


def names_alternate(sample: list[Line], reading: int) -> list[Line]:
    return sample if reading % 2 else without("rampway_cached_tokens")(sample, reading)


def edges_alternate(sample: list[Line], reading: int) -> list[Line]:
    return sample if reading % 2 else edge("1.0", "2.0")(sample, reading)


def histogram_alone_resets(sample: list[Line], reading: int) -> list[Line]:
    down = {(n, k.get("le")): v for n, k, v in lines(100 - reading)}
    return [
        (n, k, down[n, k.get("le")]) if n.startswith("rampway_ttft") else (n, k, v)
        for n, k, v in sample
    ]


SAMPLES: dict[str, Change] = {
    "NaN counter": value("rampway_requests_total", "NaN"),
    "+Inf counter": value("rampway_requests_total", "+Inf"),
    "-Inf counter": value("rampway_prompt_tokens_total", "-Inf"),
    "negative counter": value("rampway_cached_tokens_total", "-1"),
    "negative zero point": value("rampway_prompt_tokens_total", "-0.001"),
    "NaN bucket": value("rampway_ttft_seconds_bucket", "NaN"),
    "+Inf bucket": value("rampway_ttft_seconds_bucket", "+Inf"),
    "negative bucket": value("rampway_ttft_seconds_bucket", "-3"),
    "huge counter": value("rampway_requests_total", "1e999"),
    "NaN start": value("process_start_time_seconds", "NaN"),
    "no series at all": lambda _sample, _reading: [],
    "no requests": without("rampway_requests_total"),
    "no hit rate": without("rampway_cached_tokens_total", "rampway_prompt_tokens_total"),
    "no histogram": without("rampway_ttft_seconds"),
    "only the start time": without("rampway_"),
    "no +Inf bucket": edge("+Inf", "100.0"),
    "bucket edge is a word": edge("1.0", "fast"),
    "bucket edge is NaN": edge("1.0", "NaN"),
    "bucket edge is negative": edge("0.1", "-1"),
    "two buckets with one edge": edge("1.0", "10.00"),
    "bucket without an edge": plus(("rampway_ttft_seconds_bucket", {}, "5")),
    "buckets fall": plus(("rampway_ttft_seconds_bucket", {"le": "5.0"}, "1")),
    "one bucket": lambda sample, _: [
        line for line in sample if line[1].get("le") in (None, "+Inf")
    ],
    "series with other edges": plus(
        ("rampway_ttft_seconds_bucket", {"le": "+Inf", "rank": "1"}, "9")
    ),
    "duplicate series": lambda sample, _: [*sample, sample[0]],
    "duplicate with another value": plus(("rampway_requests_total", {"outcome": "ok"}, "7")),
    "label without bounds": plus(
        *(("rampway_requests_total", {"outcome": "ok", "id": str(n)}, "1") for n in range(10_001))
    ),
    "600 buckets": plus(
        *(("rampway_ttft_seconds_bucket", {"le": f"{20 + n}"}, "1e6") for n in range(600))
    ),
    "counts down": counts_down,
    "restarts between readings": restarts_each_time,
    "resets every other reading": every_other_reset,
    "a counter comes and goes": names_alternate,
    "bucket edges change": edges_alternate,
    "the histogram alone falls": histogram_alone_resets,
}


@BOTH
async def test_given_good_metrics_then_the_scene_passes_a_good_candidate(through: str) -> None:
    scene = Scene(through)
    assert await scene.judge() is Verdict.PASS
    assert scene.faults == []


@BOTH
async def test_given_good_metrics_then_the_scene_fails_a_candidate_with_errors(
    through: str,
) -> None:
    assert await Scene(through, candidate_errors=0.6).judge() is Verdict.FAIL


@BOTH
@pytest.mark.parametrize("name", SAMPLES)
async def test_given_malformed_samples_then_neither_promoted_nor_failed_and_the_fault_is_told(
    name: str, through: str
) -> None:
    # Where errors are still counted, a candidate with errors may fail: there it is a good one.
    errors = 0.0 if name in ("no hit rate", "no histogram") else 0.6
    scene = Scene(through, SAMPLES[name], candidate_errors=errors)
    assert await scene.judge() is Verdict.UNDECIDED
    assert scene.faults
    assert max(map(len, scene.faults)) < 600


def status(code: int) -> Any:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text='{"status":"error","error":"secret stack trace"}')

    return handler


async def redirect(_: web.Request) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("http://169.254.169.254/latest/meta-data")


async def large(_: web.Request) -> web.StreamResponse:
    return web.Response(text="# x\n" * (10 * 1024 * 1024 // 4))


async def zipped(_: web.Request) -> web.StreamResponse:
    headers = {"Content-Encoding": "gzip"}
    return web.Response(body=gzip.compress(b"0" * 10_000_000), headers=headers)


async def drips(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(20):
        await response.write(b" ")
        await asyncio.sleep(0.05)
    return response


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def body(content: bytes) -> Any:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content)

    return handler


ANSWERS = {
    "500": status(500),
    "503": status(503),
    "404": status(404),
    "401": status(401),
    "204": status(204),
    "redirect": redirect,
    "10 MiB": large,
    "compressed though not asked": zipped,
    "drips": drips,
    "hangs up": hangs_up,
    "empty": body(b""),
    "binary": body(bytes(range(256))),
    "zeros": body(b"\0\0\0"),
    "HTML": body(b"<html><body>login</body></html>"),
    "cut off": body(b'rampway_requests_total{outcome="ok'),
    "deep": body(b"[" * 100_000),
}


@BOTH
@pytest.mark.parametrize("name", ANSWERS)
async def test_given_an_answer_that_is_none_then_neither_promoted_nor_failed_and_the_fault_is_told(
    name: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "drips":
        monkeypatch.setattr(metric_sources, "SCRAPE_SECONDS", 0.1)
        monkeypatch.setattr(prometheus, "QUERY_SECONDS", 0.1)
    scene = Scene(through, handler=ANSWERS[name])
    assert await scene.judge() is Verdict.UNDECIDED
    assert scene.faults
    assert max(map(len, scene.faults)) < 600


def first(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["data"]["result"][0]
    return found


def shifted(seconds: float) -> Any:
    def change(answer: dict[str, Any], _: int) -> Any:
        for item in answer["data"]["result"]:
            item["values"] = [[at + seconds, text] for at, text in item["values"]]
        return answer

    return change


def stands_still(answer: dict[str, Any], reading: int) -> Any:
    return shifted(-15.0 * reading)(answer, reading)


def two_jobs(answer: dict[str, Any], _: int) -> Any:
    again = [
        {**item, "metric": {**item["metric"], "job": "other"}} for item in answer["data"]["result"]
    ]
    answer["data"]["result"] += again
    return answer


def metric(**labels: Any) -> Any:
    def change(answer: dict[str, Any], _: int) -> Any:
        first(answer)["metric"].update(labels)
        return answer

    return change


def values(*pairs: Any) -> Any:
    def change(answer: dict[str, Any], _: int) -> Any:
        first(answer)["values"] = list(pairs)
        return answer

    return change


def fell_within(answer: dict[str, Any], _: int) -> Any:
    item = first(answer)
    at, text = item["values"][0]
    item["values"] = [[at - 20.0, "1e9"], [at - 10.0, "1"], [at, text]]
    return answer


MATRICES: dict[str, Any] = {
    "status error": lambda answer, _: {**answer, "status": "error"},
    "warnings: partial answer": lambda answer, _: {**answer, "warnings": ["store is down"]},
    "a vector": lambda answer, _: {**answer, "data": {**answer["data"], "resultType": "vector"}},
    "no data": lambda _answer, _: {"status": "success"},
    "data is a list": lambda answer, _: {**answer, "data": []},
    "result is null": lambda answer, _: {**answer, "data": {**answer["data"], "result": None}},
    "result is text": lambda answer, _: {**answer, "data": {**answer["data"], "result": "x"}},
    "an empty result": lambda answer, _: {**answer, "data": {**answer["data"], "result": []}},
    "series is null": lambda answer, _: {**answer, "data": {**answer["data"], "result": [None]}},
    "no name": metric(__name__=None),
    "label is a number": metric(outcome=5),
    "no values": values(),
    "value is a number": values([1893456000, 5]),
    "value is null": values([1893456000, None]),
    "value with underscores": values([1893456000, "1_000"]),
    "value in hexadecimal": values([1893456000, "0x10"]),
    "value in Arabic digits": values([1893456000, "\u0661\u0662"]),
    "time is text": values(["now", "5"]),
    "time is true": values([True, "5"]),
    "time is huge": values([1e300, "5"]),
    "pair of three": values([1893456000, "5", "5"]),
    "times run back": values([1893456000, "5"], [1893455990, "6"]),
    "fell within the range": fell_within,
    "clock an hour behind": shifted(-3600.0),
    "clock an hour ahead": shifted(3600.0),
    "the scrape stands still": stands_still,
    "two jobs scrape the pod": two_jobs,
    "JSON NaN": lambda _answer, _: web.Response(text='{"status": "success", "data": NaN}'),
    "a list": lambda _answer, _: [],
    "null": lambda _answer, _: None,
}


@pytest.mark.parametrize("name", MATRICES)
async def test_given_a_malformed_matrix_then_neither_promoted_nor_failed_and_the_fault_is_told(
    name: str,
) -> None:
    scene = Scene("prometheus", answer=MATRICES[name])
    assert await scene.judge() is Verdict.UNDECIDED
    assert scene.faults
    assert max(map(len, scene.faults)) < 600


async def test_given_a_name_that_the_settings_lack_then_it_is_named_with_those_there_are() -> None:
    scene = Scene("prometheus")
    scene.source = "other"
    assert await scene.judge() is Verdict.UNDECIDED
    assert "no Prometheus source 'other': its settings have main" in scene.faults[0]
