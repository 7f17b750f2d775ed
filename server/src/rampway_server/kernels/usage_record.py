"""The record of what every compiled kernel takes of a GPU, its gate, its table, the image's cache.

`python -m rampway_server.kernels.usage_record check|record|docs|fill`. It knows files; compiling
is for `ahead_of_time.py`. Nothing here needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rampway_server.kernels.ahead_of_time import Compiled, compile_all, jobs
from rampway_server.kernels.shapes import RECORDED, SERVED
from rampway_server.kernels.usage_table import with_table

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ARCHS", "DTYPES", "RECORD", "differences", "key_of", "main", "read_record"]

ARCHS = (80, 89, 90, 100, 120)
DTYPES = ("bf16", "fp16", "fp32")
_DOCS = Path(__file__).parents[4] / "docs"
RECORD = _DOCS / "kernel-usage.json"
PAGE = _DOCS / "kernels.md"
AGAIN = "python -m rampway_server.kernels.usage_record record"


def key_of(row: Compiled) -> str:
    """Return the name of a compilation in the record."""
    return f"sm_{row.arch} {row.dtype} {row.kernel} {row.config}"


def read_record(path: Path = RECORD) -> dict[str, dict[str, int]]:
    """Return usage by compilation; nothing where there is no record yet."""
    if not path.is_file():
        return {}
    found: dict[str, dict[str, int]] = json.loads(path.read_text(encoding="utf-8"))["kernels"]
    return found


def differences(rows: Iterable[Compiled], record: dict[str, dict[str, int]]) -> list[str]:
    """Return, a line each, what does not fit its architecture or is not what was recorded.

    A compilation that the record lacks is one, and one that the record has of the same kernels,
    dtypes and architectures and that was not compiled.
    """
    found = []
    compiled = {key_of(row): row for row in rows}
    for key, row in compiled.items():
        assert row.usage is not None
        found += [f"{key} {fault}" for fault in row.usage.faults(row.arch)]
        now, before = asdict(row.usage), record.get(key)
        if now != before:
            found.append(f"{key} is not as recorded: got {now}, need {before}; if meant: {AGAIN}")
    gone = f"is recorded but was not compiled; if meant: {AGAIN}"
    return found + [f"{key} {gone}" for key in sorted(_of_same(compiled, record) - set(compiled))]


def _of_same(keys: Iterable[str], record: Iterable[str]) -> set[str]:
    """Return what the record has, in any config, of the kernels, dtypes and architectures of keys."""
    wanted = {tuple(key.split(" ")[:3]) for key in keys}
    return {key for key in record if tuple(key.split(" ")[:3]) in wanted}


def _compiled(options: argparse.Namespace) -> list[Compiled]:
    wanted = jobs(RECORDED, options.dtype or DTYPES, options.arch or ARCHS)
    # Old results would be found in a cache that stays, and their cost is what is asked.
    with tempfile.TemporaryDirectory(prefix="rampway-kernels-") as cache:
        return compile_all(wanted, Path(cache), workers=options.workers)


def _check(options: argparse.Namespace) -> int:
    rows = _compiled(options)
    found = differences(rows, read_record())
    sys.stdout.write("".join(f"{line}\n" for line in found) or f"{len(rows)} kernels as recorded\n")
    return 1 if found else 0


def _record(options: argparse.Namespace) -> int:
    """Write what was compiled in place of what the record says of the same; the rest stays."""
    rows = {key_of(row): asdict(row.usage) for row in _compiled(options) if row.usage}
    before = read_record()
    stale = _of_same(rows, before)
    known = {key: usage for key, usage in before.items() if key not in stale} | rows
    versions = {"triton": metadata.version("triton")}
    text = json.dumps(versions | {"kernels": dict(sorted(known.items()))}, indent=1)
    RECORD.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows)} of {len(known)} kernels recorded in {RECORD}\n")
    return _docs(options)


def _docs(_options: argparse.Namespace) -> int:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(text, read_record()), encoding="utf-8")
    return 0


def _fill(options: argparse.Namespace) -> int:
    """Fill a Triton cache for the shapes that the image serves without compiling."""
    begun = time.monotonic()
    shapes = [shape for shape in SERVED if options.shape in (None, shape.name)]
    wanted = jobs(shapes, options.dtype or ("bf16",), options.arch or ARCHS)
    rows = compile_all(wanted, options.cache, measure=False, workers=options.workers)
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{len(rows)} kernels compiled into {options.cache} in {seconds:.0f} s\n")
    return 0


_COMMANDS = {
    "check": (_check, "compare with the record; 1 where something differs or does not fit"),
    "record": (_record, "write the record anew and the table with it"),
    "docs": (_docs, "write the table of docs/kernels.md from the record"),
    "fill": (_fill, "fill a Triton cache for an image"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--arch", type=int, action="append", choices=ARCHS)
        command.add_argument("--dtype", action="append", choices=DTYPES)
        command.add_argument("--workers", type=int, help="processes (default: one a core)")
        if name == "fill":
            command.add_argument("--cache", type=Path, required=True, help="folder to fill")
            names = [shape.name for shape in SERVED]
            command.add_argument("--shape", choices=names, help="one model's (default: all)")
    options = parser.parse_args(arguments)
    return _COMMANDS[options.command][0](options)


if __name__ == "__main__":
    sys.exit(main())
