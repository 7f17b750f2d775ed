"""Prepares the peers of `bench cache` outside the repository: `python -m rampway_server.bench.peers`.

It fetches wheels from the package index and unpacks the few modules that are measured; nothing is
installed into the server's environment, and nothing of the server needs it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

__all__ = ["PEERS_FOLDER", "main", "python_of"]

PEERS_FOLDER = Path("~/.cache/rampway/peers")
WHEELS = {"sglang": "sglang==0.5.21", "vllm": "vllm==0.33.0"}
WANTED = {
    "sglang": ("sglang/srt/mem_cache/", "sglang/srt/disaggregation/", "sglang/srt/environ.py"),
    "vllm": ("vllm/v1/core/", "vllm/utils/", "vllm/distributed/kv_events.py"),
}
LIBRARIES = (
    # SGLang's Rust core links against this version.
    "torch==2.13.0",
    "numpy>=2",
    "msgspec",
    "pyzmq",
    "pydantic>=2",
    "cbor2",
    "xxhash",
    "typing-extensions",
)


def python_of(folder: Path) -> Path:
    """Return the interpreter that runs the peers."""
    return folder / "venv" / "bin" / "python"


def prepare(folder: Path) -> None:
    """Make the environment and unpack the wheels; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    if not python_of(folder).exists():
        say(f"making {folder / 'venv'}")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)  # noqa: S603 - our own words
    say("installing torch and small libraries (3 GB the first time)")
    pip(folder, "install", "-q", *LIBRARIES)
    for name, requirement in WHEELS.items():
        if (folder / name).is_dir():
            continue
        say(f"fetching {requirement} (its wheel is unpacked, not installed)")
        pip(folder, "download", "-q", "--no-deps", "-d", str(folder), requirement)
        for wheel in folder.glob(f"{name}-*.whl"):
            unpack(wheel, folder, WANTED[name])
            wheel.unlink()
    say(f"peers are ready in {folder}")


def unpack(wheel: Path, folder: Path, wanted: tuple[str, ...]) -> None:
    """Unpack the wanted files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(wanted)]
        archive.extractall(folder, names)


def pip(folder: Path, *arguments: str) -> None:
    """Run pip inside the peers' environment."""
    subprocess.run([str(python_of(folder)), "-m", "pip", *arguments], check=True)  # noqa: S603 - our own words


def say(text: str) -> None:
    """Tell where we are."""
    print(f"peers: {text}", flush=True)  # noqa: T201 - a command's progress


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rampway_server.bench.peers",
        description="Prepare SGLang's and vLLM's prefix caches for `rampway-server bench cache`.",
    )
    parser.add_argument("--folder", type=Path, default=PEERS_FOLDER, help="where they go")
    folder = parser.parse_args().folder.expanduser()
    if sys.version_info[:2] != (3, 11):
        say("this is not Python 3.11: the wheel of SGLang's Rust core may not fit and be skipped")
    try:
        prepare(folder)
    except subprocess.CalledProcessError as error:
        say(f"could not be prepared: {error}; what is missing will be skipped")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
