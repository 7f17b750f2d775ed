"""A Prometheus as a metrics source: the query, its answer, lagging scrapes, settings; and a real Prometheus."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from metric_payloads import STEP, as_matrix, as_text, lines
from pod_server import EnginePod

from rampway_operator.cluster.metric_sources import MetricSources
from rampway_operator.cluster.metrics import WindowMemory, read_window
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.prometheus import Prometheus, PrometheusFailed
from rampway_operator.core.observed import Arm, Pod, Pool
from rampway_operator.core.presets import PRESETS
from rampway_operator.core.promql import PodLabels, latest_scrape, query, series_names
from rampway_operator.core.spec import Analysis, Engine, EngineType, Spec
from rampway_operator.errors import SettingsError
from rampway_operator.settings import PrometheusSettings, read_settings

BINARY = os.environ.get("PROMETHEUS_BINARY") or shutil.which("prometheus")
RAMPWAY = PRESETS[EngineType.RAMPWAY]


@pytest.mark.parametrize("engine", EngineType)
def test_given_a_preset_then_the_query_names_every_series_it_may_read(engine: EngineType) -> None:
    names = series_names(PRESETS[engine])
    asked = query(PRESETS[engine], PodLabels(), "prod", "chat-1", STEP)
    pattern = re.search(r'__name__=~"([^"]+)"', asked)
    assert pattern is not None
    assert pattern[1].split("|") == list(names)
    assert asked.endswith('namespace="prod",pod="chat-1"}[45s]')
    assert any(name.endswith("_bucket") for name in names)


@pytest.mark.parametrize(
    ("hostile", "written"),
    [
        ('a"} or vector(1) #', r"a\"} or vector(1) #"),
        ("back\\slash", r"back\\slash"),
        ("line\nfeed", r"line\U0000000afeed"),
        ("ünï", r"\U000000fcn\U000000ef"),
    ],
)
def test_given_hostile_label_values_then_they_stay_inside_their_quotes(
    hostile: str, written: str
) -> None:
    asked = query(RAMPWAY, PodLabels(matchers=(("job", hostile),)), "prod", "c", STEP)
    assert f'job="{written}"}}[' in asked


def test_given_a_label_name_that_is_none_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match="label name: got 'a=b'"):
        query(RAMPWAY, PodLabels(pod="a=b"), "prod", "c", STEP)


def test_given_a_series_that_vanished_from_the_newest_scrape_then_it_is_not_counted() -> None:
    answer = as_matrix(lines(3), "c", 1000.0)
    answer["data"]["result"][0]["values"] = [[985.0, "100"]]
    scraped = latest_scrape(answer, PodLabels(), "c")
    assert scraped.at == datetime.fromtimestamp(1000.0, UTC)
    assert len(scraped.samples) == len(lines(3)) - 1


def test_given_labels_that_prometheus_renamed_then_they_have_the_names_that_the_pod_gave_them() -> (
    None
):
    answer = as_matrix(
        [("sglang:http_responses_total", {"exported_endpoint": "/v1/a"}, "1")], "c", 1.0
    )
    answer["data"]["result"][0]["metric"]["endpoint"] = "metrics"
    [(_, labels, _)] = latest_scrape(answer, PodLabels(), "c").samples
    assert labels == {"endpoint": "/v1/a"}


def pod(name: str, arm: Arm) -> Pod:
    return Pod(
        name=name,
        uid=f"uid-{name}",
        hash="a" * 10,
        pool=Pool.MAIN,
        resource_version="1",
        created_at=datetime(2029, 1, 1, tzinfo=UTC),
        arm=arm,
        ip="127.0.0.1",
        ready=True,
        in_rotation=True,
    )


class Scraping:
    """A Prometheus that scraped `age` ago and whose pods serve 40 requests an interval."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.every = STEP
        self.late = timedelta(0)

    async def answer(self, _: web.Request) -> web.StreamResponse:
        since = (self.now - self.late - datetime(2030, 1, 1, tzinfo=UTC)) // self.every
        at = datetime(2030, 1, 1, tzinfo=UTC) + since * self.every
        reading = round((at - datetime(2030, 1, 1, tzinfo=UTC)) / STEP)
        return web.json_response(as_matrix(lines(reading), "c", at.timestamp()))


@pytest.fixture
async def scraping() -> AsyncIterator[tuple[Scraping, MetricSources]]:
    state = Scraping()
    app = web.Application()
    app.router.add_post("/api/v1/query", state.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    sources = MetricSources(PodHttp(), {"main": Prometheus(PrometheusSettings("main", url))})
    yield state, sources
    await sources.close()
    await runner.cleanup()


SPEC = Spec(engine=Engine(image="x"), analysis=Analysis(interval=STEP, prometheus="main"))


async def test_given_a_scrape_every_two_intervals_then_windows_are_two_intervals_long(
    scraping: tuple[Scraping, MetricSources],
) -> None:
    state, sources = scraping
    state.every = 2 * STEP
    memory, found = WindowMemory(), []
    for _ in range(9):
        windows, status = await read_window(
            sources, memory, SPEC, "prod", [pod("c", Arm.CANDIDATE)], state.now
        )
        memory.stored()
        found += windows
        assert not status.error
        state.now += STEP
    assert [w.ended_at - w.started_at for w in found] == [2 * STEP] * 4
    assert sum(w.candidate.requests for w in found) == 8 * 40


async def test_given_a_source_that_lags_then_no_window_reaches_back_before_the_pods_took_their_parts(
    scraping: tuple[Scraping, MetricSources],
) -> None:
    state, sources = scraping
    state.now += 10 * STEP + timedelta(seconds=5)
    began = state.now
    memory, found, told = WindowMemory(), [], []
    for _ in range(4):
        windows, status = await read_window(
            sources, memory, SPEC, "prod", [pod("c", Arm.CANDIDATE)], state.now
        )
        memory.stored()
        found += windows
        told.append(status.dropped)
        state.now += STEP
    assert "older than the last change" in told[0]
    assert min(w.started_at for w in found) >= began
    assert len(found) == 2


def test_given_sources_in_the_settings_then_they_are_read_with_their_labels() -> None:
    value = json.dumps(
        [
            {
                "name": "main",
                "url": "https://p:9090/x",
                "podLabel": "kpod",
                "matchers": {"job": "llm"},
            }
        ]
    )
    found = read_settings({"RAMPWAY_NAMESPACES": "a", "RAMPWAY_PROMETHEUS": value}).prometheus
    labels = PodLabels(pod="kpod", matchers=(("job", "llm"),))
    assert found == (PrometheusSettings("main", "https://p:9090/x", labels=labels),)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("nonsense", "need a JSON list"),
        ("{}", "need a JSON list"),
        ("[1]", "need a JSON list"),
        ('[{"url": "http://p"}]', "name ''"),
        ('[{"name": "A", "url": "http://p"}]', "name 'A'"),
        ('[{"name": "a", "url": "p:9090"}]', "url 'p:9090'"),
        ('[{"name": "a", "url": "ftp://p"}]', "url 'ftp://p'"),
        ('[{"name": "a", "url": "http://u:p@h"}]', "without user"),
        ('[{"name": "a", "url": "http://h:x"}]', "url 'http://h:x'"),
        ('[{"name": "a", "url": "http://h", "token": "t"}]', "only the keys"),
        ('[{"name": "a", "url": "http://h", "podLabel": "a-b"}]', "label 'a-b'"),
        ('[{"name": "a", "url": "http://h", "matchers": {"job": 1}}]', "an object of labels"),
        ('[{"name": "a", "url": 5}]', "need text"),
        ('[{"name": "a", "url": "http://h"}, {"name": "a", "url": "http://i"}]', "each name once"),
    ],
)
def test_given_a_source_that_cannot_be_used_then_its_fault_is_named(value: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(fault)):
        read_settings({"RAMPWAY_NAMESPACES": "a", "RAMPWAY_PROMETHEUS": value})


async def test_given_a_token_file_then_it_is_read_for_each_query_and_never_told(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=401)

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    token = tmp_path / "token"
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    source = Prometheus(PrometheusSettings("main", url, token_file=str(token)))
    told = []
    for secret in ("first", "second"):
        token.write_text(f"{secret}\n")
        with pytest.raises(PrometheusFailed) as error:
            await source.query("up")
        told.append(str(error.value))
    token.unlink()
    with pytest.raises(PrometheusFailed, match="token"):
        await source.query("up")
    await source.close()
    await runner.cleanup()
    assert seen == ["Bearer first", "Bearer second"]
    assert not any("first" in text or "second" in text for text in told)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def real_prometheus(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """(URL, port of the pod to scrape): a real Prometheus that scrapes a pod on loopback each second."""
    if BINARY is None:
        pytest.skip(
            "needs Prometheus: install the package prometheus, or set PROMETHEUS_BINARY to its program"
        )
    pod_port, port = _free_port(), _free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        "  - job_name: llm\n"
        "    static_configs:\n"
        f"      - targets: ['127.0.0.1:{pod_port}']\n"
        "        labels: {namespace: prod, pod: c}\n"
    )
    with subprocess.Popen(
        [
            BINARY,
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}", pod_port
        finally:
            process.terminate()


async def _until(condition: object, seconds: float = 30.0) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not await condition():  # type: ignore[operator]
        assert asyncio.get_running_loop().time() < end, f"not within {seconds:g} s"
        await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_given_a_real_prometheus_then_its_windows_have_what_the_pod_counted(
    real_prometheus: tuple[str, int],
) -> None:
    url, pod_port = real_prometheus
    interval = timedelta(seconds=2)
    spec = Spec(engine=Engine(image="x"), analysis=Analysis(interval=interval, prometheus="main"))
    source = Prometheus(PrometheusSettings("main", url))
    sources = MetricSources(PodHttp(), {"main": source})
    engine = EnginePod()
    engine.fixed_port, engine.metrics_text = pod_port, as_text(lines(1))
    pods = [pod("c", Arm.CANDIDATE)]

    async def readable() -> bool:
        found, _ = await sources.read(spec, "prod", pods, datetime.now(UTC))
        return bool(found)

    async with engine:
        await _until(readable)
        counters, faults = await sources.read(spec, "prod", pods, datetime.now(UTC))
        assert faults == {}
        assert counters["uid-c"].requests == 140
        assert counters["uid-c"].cached_tokens == 7000
        assert counters["uid-c"].ttft is not None
        assert counters["uid-c"].ttft.counts == (70, 133, 140, 140)
        memory = WindowMemory()
        found, served = [], 0.0
        for reading in range(2, 9):
            engine.metrics_text = as_text(lines(reading))
            await asyncio.sleep(interval.total_seconds())
            windows, status = await read_window(
                sources, memory, spec, "prod", pods, datetime.now(UTC)
            )
            memory.stored()
            found += windows
            assert not status.error
        served = sum(w.candidate.requests for w in found)
        assert len(found) >= 4
        assert served % 40 == 0
        assert 40 * 4 <= served <= 40 * 7
        engine.metrics_text = as_text(lines(0))  # as after a restart: every counter fell
        await asyncio.sleep(interval.total_seconds())
        _, status = await read_window(sources, memory, spec, "prod", pods, datetime.now(UTC))
        assert "it was reset" in status.error
    _, faults = await sources.read(spec, "other", pods, datetime.now(UTC))
    assert "has no samples of pod c" in faults["uid-c"]
    await sources.close()
