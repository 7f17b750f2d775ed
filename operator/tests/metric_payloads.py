"""Two pods whose metrics can be read directly or through a Prometheus, good or bad in every way we know."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from aiohttp import web
from analysis_builders import after, rollout, spec
from pod_server import EnginePod, Handler

from rampway_operator.cluster.metric_sources import MetricSources
from rampway_operator.cluster.metrics import WindowMemory, read_window
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.prometheus import Prometheus
from rampway_operator.core.observed import Arm, Pod, Pool
from rampway_operator.core.spec import Comparison, Metric, Objective, Require, Spec
from rampway_operator.core.state import Verdict
from rampway_operator.settings import PrometheusSettings

STEP = timedelta(seconds=15)
READINGS = 7
Line = tuple[str, dict[str, str], str]
"""Name, labels and value as text."""
Change = Callable[[list[Line], int], list[Line]]
"""What is wrong with the lines of one reading, by its number."""


def lines(reading: int, *, errors: float = 0.0) -> list[Line]:
    """What a good pod has counted at its `reading`-th scrape."""
    served = 100.0 + 40.0 * reading
    buckets = [
        ("rampway_ttft_seconds_bucket", {"le": edge}, f"{served * share:g}")
        for edge, share in (("0.1", 0.5), ("1.0", 0.95), ("10.0", 1.0), ("+Inf", 1.0))
    ]
    return [
        ("rampway_requests_total", {"outcome": "ok"}, f"{served * (1 - errors):g}"),
        ("rampway_requests_total", {"outcome": "error"}, f"{served * errors:g}"),
        ("rampway_prompt_tokens_total", {}, f"{served * 100:g}"),
        ("rampway_cached_tokens_total", {}, f"{served * 50:g}"),
        *buckets,
        ("process_start_time_seconds", {}, "1700000000.5"),
    ]


def as_text(sample: list[Line]) -> str:
    """The lines in the text format."""

    def shown(labels: dict[str, str]) -> str:
        inner = ",".join(f'{k}="{v}"' for k, v in labels.items())
        return f"{{{inner}}}" if inner else ""

    return "".join(f"{name}{shown(labels)} {value}\n" for name, labels, value in sample)


def as_matrix(sample: list[Line], pod: str, at: float) -> dict[str, Any]:
    """The lines as Prometheus answers a range selector that reaches back over one more, equal scrape."""
    target = {"job": "llm", "instance": "10.0.0.1:9400", "namespace": "prod", "pod": pod}
    result = [
        {"metric": {"__name__": name, **labels, **target}, "values": [[at, value]]}
        for name, labels, value in sample
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@dataclass(slots=True)
class Scene:
    """A candidate and a stable pod, read again and again; `change` says what is wrong with the candidate."""

    through: str
    change: Change = lambda sample, _: sample
    answer: Callable[[dict[str, Any], int], Any] | None = None
    """What becomes of Prometheus' answer about the candidate: JSON data, or a response as it is."""
    handler: Handler | None = None
    """What the pod or the Prometheus answers instead."""
    candidate_errors: float = 0.0
    source: str = "main"
    """The Prometheus that the spec names."""
    reading: int = 0
    now: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    faults: list[str] = field(default_factory=list)

    async def judge(self) -> Verdict:
        """The outcome of the analysis step after READINGS readings."""
        other = EnginePod("127.0.0.2")
        async with EnginePod() as engine:
            other.fixed_port = engine.port
            engine.metrics_handler, other.metrics_handler = self._candidate, self._stable
            async with other:
                runner, port = await self._serve_prometheus()
                settings = PrometheusSettings("main", f"http://127.0.0.1:{port}")
                sources = MetricSources(
                    PodHttp(loopback_allowed=True), {"main": Prometheus(settings)}
                )
                try:
                    return await self._run(sources, _spec(self.through, engine.port, self.source))
                finally:
                    await sources.close()
                    await runner.cleanup()

    async def _run(self, sources: MetricSources, wanted: Spec) -> Verdict:
        memory, state = WindowMemory(), rollout()
        pods = [_pod("c", Arm.CANDIDATE, "127.0.0.1"), _pod("s", Arm.STABLE, "127.0.0.2")]
        outcome = Verdict.UNDECIDED
        for self.reading in range(READINGS):
            windows, status = await read_window(sources, memory, wanted, "prod", pods, self.now)
            memory.stored()
            self.faults += [fault for fault in (status.error, status.dropped) if fault]
            self.faults += status.missing_metrics
            state, found = after(wanted, windows, state, final=False)
            self.faults += [r.message for r in found.verdicts if "cannot be judged" in r.message]
            if found.outcome is not Verdict.UNDECIDED:
                return found.outcome
            self.now += STEP
        return outcome

    async def _candidate(self, request: web.Request) -> web.StreamResponse:
        if self.handler is not None:
            return await self.handler(request)
        return web.Response(text=as_text(self._lines()))

    async def _stable(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=as_text(lines(self.reading)))

    def _lines(self) -> list[Line]:
        return self.change(lines(self.reading, errors=self.candidate_errors), self.reading)

    async def _serve_prometheus(self) -> tuple[web.AppRunner, int]:
        async def query(request: web.Request) -> web.StreamResponse:
            asked = re.search(r'pod="([a-z]+)"', str((await request.post())["query"]))
            assert asked is not None
            at = self.now.timestamp()
            if asked[1] == "s":
                return web.json_response(as_matrix(lines(self.reading), "s", at))
            if self.handler is not None:
                return await self.handler(request)
            answer: Any = as_matrix(self._lines(), "c", at)
            if self.answer is not None:
                answer = self.answer(answer, self.reading)
            if isinstance(answer, web.Response):
                return answer
            return web.Response(text=json.dumps(answer), content_type="application/json")

        app = web.Application()
        app.router.add_post("/api/v1/query", query)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, int(runner.addresses[0][1])


def _pod(name: str, arm: Arm, ip: str) -> Pod:
    return Pod(
        name=name,
        uid=f"uid-{name}",
        hash="a" * 10,
        pool=Pool.MAIN,
        resource_version="1",
        created_at=datetime(2029, 1, 1, tzinfo=UTC),
        arm=arm,
        ip=ip,
        ready=True,
        in_rotation=True,
    )


def _spec(through: str, port: int, source: str) -> Spec:
    """Objectives that a handful of good windows passes and a handful of bad ones fails."""
    gentle: dict[str, Any] = {"min_samples": 20, "require": Require.NOT_FAIL}
    objectives = (
        Objective("errors", Metric.ERROR_RATE, slo_max=Decimal("0.2"), **gentle),
        Objective(
            "hits",
            Metric.PREFIX_CACHE_HIT_RATE,
            comparison=Comparison(max_drop=Decimal("0.3")),
            **gentle,
        ),
        Objective("ttft", Metric.TTFT, quantile=Decimal("0.5"), slo_max=Decimal(10), **gentle),
    )
    made = spec(*objectives, interval=STEP, prometheus=source if through == "prometheus" else None)
    return replace(made, engine=replace(made.engine, metrics_port=port))
