"""`kubectl rampway analysis`: the operator's judgement on recorded metrics, without a cluster.

It does not know the statistics (`core/verdict.py`) nor the file's form (`core/recording.py`).
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from rampway_operator.cli.analysis_plot import page
from rampway_operator.cli.session import CommandFailed
from rampway_operator.cluster.prometheus import Prometheus, PrometheusFailed
from rampway_operator.cluster.recorder import record as read_windows
from rampway_operator.core.durations import parse_duration
from rampway_operator.core.observed import Arm
from rampway_operator.core.offline import judge as judge_windows
from rampway_operator.core.offline import self_test as test_equal_builds
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.promql import PodLabels
from rampway_operator.core.recording import (
    PodWindow,
    RecordingInvalid,
    as_lines,
    as_window,
    from_lines,
)
from rampway_operator.core.scrape import MetricsInvalid
from rampway_operator.core.spec import EngineType, Spec
from rampway_operator.core.state import Verdict
from rampway_operator.settings import PrometheusSettings

__all__ = ["commands"]

FAILED: Final = 1
UNDECIDED: Final = 2
DEFAULT: Final[dict[str, Any]] = {"spec": {"engine": {"image": "recorded"}}}

commands = typer.Typer(
    name="analysis",
    help="Records metrics, judges recordings as the operator would, and tests the judgement on them.",
    no_args_is_help=True,
)

Recording = Annotated[Path, typer.Argument(help="File written by `analysis record`.")]
SpecFile = Annotated[
    Path | None, typer.Option("-f", help="InferenceDeployment (YAML) whose objectives judge.")
]
Pods = list[str]


@commands.command()
def record(  # noqa: PLR0913, PLR0917 each is one option of the command line
    url: Annotated[str, typer.Option("--prometheus", help="Base address of a Prometheus.")],
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the pods.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    candidate: Annotated[Pods, typer.Option("--candidate", help="A pod; repeat.")] = [],  # noqa: B006 typer reads it only
    baseline: Annotated[Pods, typer.Option("--baseline", help="A pod; repeat.")] = [],  # noqa: B006 the same
    stable: Annotated[Pods, typer.Option("--stable", help="A pod; repeat.")] = [],  # noqa: B006 the same
    engine: Annotated[
        EngineType, typer.Option("--engine", help="Whose metrics.")
    ] = EngineType.RAMPWAY,
    last: Annotated[str, typer.Option("--last", help="How far back, such as 1h.")] = "1h",
    interval: Annotated[str, typer.Option("--interval", help="Length of a window.")] = "15s",
    pod_label: Annotated[str, typer.Option("--pod-label", help="Label with a pod's name.")] = "pod",
) -> None:
    """Write what pods did, window by window, from a Prometheus' past."""
    arms = {
        pod: arm
        for arm, pods in (
            (Arm.CANDIDATE, candidate),
            (Arm.BASELINE, baseline),
            (Arm.STABLE, stable),
        )
        for pod in pods
    }
    if len(arms) != len(candidate) + len(baseline) + len(stable) or not arms:
        raise CommandFailed(
            "pods: got none, or one twice; need --candidate, --baseline or --stable pods"
        )
    try:
        length, each = parse_duration(last), parse_duration(interval)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    source = Prometheus(PrometheusSettings("command line", url, labels=PodLabels(pod=pod_label)))

    async def read() -> tuple[PodWindow, ...]:
        try:
            end = datetime.now(UTC)
            return await read_windows(
                source, engine, namespace, arms, end=end, length=length, interval=each
            )
        finally:
            await source.close()

    try:
        windows = asyncio.run(read())
        text = "".join(f"{line}\n" for line in as_lines(windows))
    except (PrometheusFailed, MetricsInvalid, RecordingInvalid, ValueError) as error:
        raise CommandFailed(str(error)) from error
    if not windows:
        raise CommandFailed(f"no window of {interval} in which all pods were scraped at both ends")
    output.write_text(text, encoding="utf-8")
    print(f"{output}: {len(windows)} windows of {len(arms)} pods")


@commands.command()
def judge(
    recording: Recording,
    spec_file: SpecFile = None,
    html: Annotated[Path | None, typer.Option("--html", help="Plot to write.")] = None,
) -> None:
    """Judge a recording as the last analysis before 100 %: exit 0 pass, 1 fail, 2 undecided."""
    spec, recorded = _spec(spec_file), _recorded(recording)
    windows = [window for item in recorded if (window := as_window(item)) is not None]
    if not windows:
        raise CommandFailed("the recording has no candidate pod: need arm candidate")
    found = judge_windows(spec, windows)
    for look in found.looks:
        minutes = (look.at - windows[0].started_at).total_seconds() / 60.0
        bounds = f"[{look.bounds.low:.4g}, {look.bounds.high:.4g}]"
        print(
            f"{minutes:6.1f} min  {look.objective}: {look.verdict.value.lower()}, "
            f"difference {look.bounds.estimate:+.4g} in {bounds}"
        )
    for verdict in found.verdicts:
        print(verdict.message)
    print(f"{found.outcome.value} after {found.used} of {len(windows)} windows")
    if html is not None:
        html.write_text(page(spec, windows[: found.used], found), encoding="utf-8")
    codes = {Verdict.FAIL: FAILED, Verdict.UNDECIDED: UNDECIDED}
    raise typer.Exit(codes.get(found.outcome, 0))


@commands.command(name="self-test")
def self_test(
    recording: Recording,
    spec_file: SpecFile = None,
    arm: Annotated[Arm, typer.Option("--arm", help="Whose pods are equal builds.")] = Arm.STABLE,
    repetitions: Annotated[int, typer.Option("--repetitions", min=1, max=100_000)] = 200,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """A/A: deal equal pods to two arms again and again and print the realised false-abort rate."""
    spec, recorded = _spec(spec_file), _recorded(recording)
    pods = sorted({pod for window in recorded for pod, part in window.arms.items() if part is arm})
    try:
        found = test_equal_builds(spec, recorded, pods, repetitions=repetitions, seed=seed)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    promised = float(spec.analysis.error_rates.false_abort)
    if output == "json":
        data = {field: getattr(found, field) for field in ("aborted", "promoted", "undecided")}
        print(json.dumps({**data, "abortedAtMost": found.aborted_at_most, "promised": promised}))
        return
    share = 100.0 / found.repetitions
    print(
        f"{found.repetitions} rollouts of equal builds: aborted {found.aborted * share:.1f} % "
        f"(at most {100 * found.aborted_at_most:.1f} % with 95 % confidence, promised "
        f"{100 * promised:g} %), promoted {found.promoted * share:.1f} %, "
        f"undecided {found.undecided * share:.1f} %"
    )


def _recorded(path: Path) -> tuple[PodWindow, ...]:
    try:
        return from_lines(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError, RecordingInvalid) as error:
        raise CommandFailed(f"{path}: {error}") from error


def _spec(path: Path | None) -> Spec:
    """The spec in the file, or the default objectives."""
    try:
        found = DEFAULT if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise CommandFailed(f"{path}: got no object, need one InferenceDeployment")
        return parse(found)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandFailed(f"{path}: {error}") from error
    except InvalidSpec as error:
        raise CommandFailed(f"the spec is not valid: {error}") from error
