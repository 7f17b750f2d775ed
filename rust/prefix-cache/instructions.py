"""Counts the instructions of cache operations with callgrind and compares them with the record.

Wall time is noisy, instructions are not: this is the speed gate. What is left of chance is the hash key of each
process, which makes some probes longer; so a case that is above the record is counted in further processes.
`--record` writes the record, `--scale` compares large trees with small ones. Without valgrind it says so and passes.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "instructions.json"
CASES = {
    "hit-1": 40,
    "hit-16": 40,
    "hit-512": 10,
    "hit-forked-512": 10,
    "hit-wide-ids": 40,
    "below-10": 200,
    "miss": 10,
    "evict-1k": 40,
    "insert": 40,
}
"""Cases of the example `cases`, and how many samples of each."""
ALLOWED = 1.10
PROCESSES = 6
"""Counts of a case, each with a hash key of its own; the fewest instructions count."""
SCALES = (("below-10", "below-100k", 200), ("evict-1k", "evict-1m", 200))
"""Small case, large case, samples."""
ALLOWED_SCALE = 0.05


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the record")
    parser.add_argument("--scale", action="store_true", help="compare large trees with small ones")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        say("SKIPPED instruction counts: there is no valgrind (apt-get install valgrind)")
        return 0
    binary = build()
    if args.scale:
        return scale(binary)
    before = {} if args.record else recorded()["instructions"]
    counts = {
        case: fewest(binary, case, samples, enough=ALLOWED * before.get(case, 0.0))
        for case, samples in CASES.items()
    }
    if args.record:
        record = {"compiler": compiler(), "instructions": counts}
        RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return compare(counts)


def compare(counts: dict[str, float]) -> int:
    """Say how each count differs from the record; 1 when one is more than a tenth above it."""
    record = recorded()
    slower = []
    for case, got in counts.items():
        need = record["instructions"][case]
        say(f"{case:16} {got:10.1f} instructions, {100 * (got / need - 1):+6.1f} % of the record")
        if got > ALLOWED * need:
            slower.append(case)
    if slower:
        say(f"instructions grew by more than 10 %: {', '.join(slower)}")
        say(f"recorded with {record['compiler']}, now {compiler()}; see --record if it is meant")
    return 1 if slower else 0


def scale(binary: Path) -> int:
    """Say what a large tree costs against a small one; 1 when it is more than a twentieth."""
    failed = False
    for small, large, samples in SCALES:
        few, many = (count(binary, case, samples) for case in (small, large))
        growth = many / few - 1
        say(f"{large}: {many:.1f} instructions, {small}: {few:.1f}, {100 * growth:+.1f} %")
        failed = failed or growth > ALLOWED_SCALE
    return 1 if failed else 0


def fewest(binary: Path, case: str, samples: int, enough: float) -> float:
    """Return the fewest instructions of one operation among up to six processes; stops at `enough`."""
    least = count(binary, case, samples)
    for _ in range(PROCESSES - 1):
        if least <= enough:
            break
        least = min(least, count(binary, case, samples))
    return least


def recorded() -> dict[str, Any]:
    """Return the record: the compiler and the instructions of each case."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def build() -> Path:
    """Return the example, built for release."""
    run("cargo", "build", "-q", "--release", "-p", "rampway-prefix-cache", "--example", "cases")
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--no-deps"))
    return Path(metadata["target_directory"]) / "release/examples/cases"


def count(binary: Path, case: str, samples: int) -> float:
    """Return the instructions of one operation of a case."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own binary
            [  # noqa: S607 - found in PATH before
                "valgrind",
                "--tool=callgrind",
                "--toggle-collect=cases::timed*",
                f"--callgrind-out-file={folder}/out",
                *(str(binary), case, str(samples), "--no-floor"),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if collected is None:
        raise SystemExit(f"callgrind counted nothing: {done.stderr[-400:]}")
    return round(int(collected[1]) / samples / json.loads(done.stdout)["operations"], 1)


def compiler() -> str:
    """Return the compiler's version."""
    return run("rustc", "--version").strip()


def run(*command: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE)  # noqa: S603 - fixed commands
    return done.stdout


def say(text: str) -> None:
    """Print a line."""
    print(text, flush=True)  # noqa: T201 - a command's answer


if __name__ == "__main__":
    sys.exit(main())
