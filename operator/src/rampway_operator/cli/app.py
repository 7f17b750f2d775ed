"""The commands of `kubectl rampway` and their exit codes.

It does not know how anything is computed: it reads status, and asks the operator by one annotation.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console, RenderableType
from typer.exceptions import TyperException

from rampway_operator.cli import view
from rampway_operator.cli.analysis import commands as analysis_commands
from rampway_operator.cli.explain import explanation
from rampway_operator.cli.outcome import outcome_of
from rampway_operator.cli.preflight import NodeReport, matrix, read_reports, revision_of
from rampway_operator.cli.session import CommandFailed, Session, Target, opened

__all__ = ["app", "main"]

TIMED_OUT: Final = 2
FAILED: Final = 3
USAGE: Final = 64
POLL_SECONDS: Final = 1.0

T = TypeVar("T")
app = typer.Typer(
    name="kubectl rampway",
    help="Shows rollouts of InferenceDeployments and asks the operator to act on them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(analysis_commands)


class UsageFailed(CommandFailed):
    """An option has a value that cannot be used."""


Name = Annotated[str, typer.Argument(help="Name of the InferenceDeployment.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Its namespace.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig.")]
Revision = Annotated[
    str | None,
    typer.Option(
        "--revision", help="Hash; default the candidate, else the last failed, else stable."
    ),
]
Output = Annotated[str, typer.Option("-o", "--output", help="text or json.")]
Timeout = Annotated[str, typer.Option("--timeout", help="Longest wait, such as 90s, 30m or 1h30m.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 3 failed, 64 wrong usage; `wait` has 0 promoted, 1 rolled back, 2 timed out."""
    command = typer.main.get_command(app)
    try:
        result = command.main(
            list(arguments) if arguments is not None else None,
            prog_name="kubectl rampway",
            standalone_mode=False,
        )
    except UsageFailed as error:
        return _complain(f"{error} (see --help)", USAGE)
    except CommandFailed as error:
        return _complain(str(error), FAILED)
    except typer.Abort:
        return _complain("interrupted", 130)
    except TyperException as error:
        shown = getattr(error, "format_message", error.__str__)()
        return _complain(f"{shown} (see --help)", USAGE)
    return result if isinstance(result, int) else 0


@app.command()
def status(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Show revisions, step, verdicts with their numbers, faults and the last decisions."""
    _is_json(output)
    found = _read(name, Target(namespace, context, kubeconfig))
    _print(found, view.status(found), output)


@app.command()
def watch(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print a line for every change until interrupted."""

    async def follow(session: Session) -> None:
        last = ""
        while True:
            line = view.headline(await session.read(name))
            if line != last:
                print(f"{datetime.now(UTC):%H:%M:%S}  {line}", flush=True)
                last = line
            await asyncio.sleep(POLL_SECONDS)

    _run(Target(namespace, context, kubeconfig), follow)


@app.command()
def wait(
    name: Name,
    timeout: Timeout = "30m",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait for the end of the rollout of what the spec says now: exit 0 promoted, 1 rolled back, 2 timed out."""
    seconds = _seconds(timeout)

    async def until_ended(session: Session) -> int:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            found = await session.read(name)
            if ended := outcome_of(found):
                print(ended.message)
                return ended.code
            if loop.time() >= end:
                print(f"timed out after {timeout}: {view.headline(found)}", file=sys.stderr)
                return TIMED_OUT
            await asyncio.sleep(POLL_SECONDS)

    raise typer.Exit(_run(Target(namespace, context, kubeconfig), until_ended))


@app.command()
def explain(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Recompute every stored verdict from the stored evidence, and say what it rests on."""
    _is_json(output)
    found = _read(name, Target(namespace, context, kubeconfig))
    told = explanation(found)
    if _is_json(output):
        print(json.dumps(told.as_data(), indent=2))
    else:
        Console(soft_wrap=True).print(told.as_text())
    if not told.agrees:
        raise CommandFailed("a stored verdict does not follow from the stored evidence")


@app.command()
def history(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Show the ended rollouts and the decisions."""
    _is_json(output)
    found = _read(name, Target(namespace, context, kubeconfig))
    _print(found, view.history(found), output)


@app.command()
def preflight(
    name: Name,
    revision: Revision = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Show what check_env found, node by node and check by check, with the remedy of each failure."""
    _is_json(output)

    async def read(session: Session) -> tuple[str, list[NodeReport]]:
        found = await session.read(name)
        shown = revision_of(found, revision)
        return shown, read_reports(await session.check_reports(name, shown))

    shown, reports = _run(Target(namespace, context, kubeconfig), read)
    if _is_json(output):
        data = {"name": name, "revision": shown, "nodes": dict(reports)}
        print(json.dumps(data, indent=2))
    else:
        Console(soft_wrap=True).print(matrix(shown, reports))


@app.command()
def promote(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Go on to the next step without its evidence; check_env and the smoke request are never passed over."""
    _command(name, "promote", Target(namespace, context, kubeconfig))


@app.command(name="promote-full")
def promote_full(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Pass over all remaining steps."""
    _command(name, "promote-full", Target(namespace, context, kubeconfig))


@app.command()
def abort(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """End the rollout and give all traffic back to the stable revision."""
    _command(name, "abort", Target(namespace, context, kubeconfig))


@app.command()
def retry(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Try the revision that failed once more."""
    _command(name, "retry", Target(namespace, context, kubeconfig))


@app.command()
def pause(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Hold the rollout where it is, by spec.paused; failures are still acted on."""
    _set_paused(name, Target(namespace, context, kubeconfig), paused=True)


@app.command()
def resume(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a rollout that spec.paused holds go on."""
    _set_paused(name, Target(namespace, context, kubeconfig), paused=False)


def _run(target: Target, work: Callable[[Session], Awaitable[T]]) -> T:
    async def with_session() -> T:
        async with opened(target) as session:
            return await work(session)

    return asyncio.run(with_session())


def _read(name: str, target: Target) -> dict[str, Any]:
    return _run(target, lambda session: session.read(name))


def _command(name: str, verb: str, target: Target) -> None:
    result = _run(target, lambda session: session.command(name, verb))
    if result != "Applied":
        raise CommandFailed(f"{verb} {name}: {result}")
    print(f"{verb} {name}: applied")


def _set_paused(name: str, target: Target, *, paused: bool) -> None:
    changed = _run(target, lambda session: session.set_paused(name, paused=paused))
    word = "paused" if paused else "resumed"
    print(f"{name}: {word}" if changed else f"{name}: was {word} already")


def _print(found: dict[str, Any], text: RenderableType, output: str) -> None:
    if _is_json(output):
        print(json.dumps(view.summary(found), indent=2))
    else:
        Console(soft_wrap=True).print(text)


def _is_json(output: str) -> bool:
    if output not in ("text", "json"):
        raise UsageFailed(f"-o: got {output!r}, need text or json")
    return output == "json"


def _seconds(text: str) -> float:
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    if not text or parts is None:
        raise UsageFailed(f"--timeout: got {text!r}, need a duration such as 90s, 30m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def _complain(message: str, code: int) -> int:
    print(f"kubectl rampway: {message}", file=sys.stderr)
    return code
