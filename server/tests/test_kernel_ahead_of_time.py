"""Every kernel compiles for GPUs that are not here: nothing spills, all is as recorded, a GPU's first request finds it.

Slow for all architectures and dtypes; compute capability 9.0 in bfloat16 always.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)
pytest.importorskip("triton", reason="triton is not installed: kernels are not compiled")

from rampway_server.kernels import usage_record
from rampway_server.kernels.ahead_of_time import Compiled, compile_all, jobs
from rampway_server.kernels.shapes import RECORDED, SERVED
from rampway_server.kernels.usage import Usage
from rampway_server.kernels.usage_table import BEGIN, END, with_table

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "rampway_server"
USAGE = Usage(32, 0, 50_000, 400)
ROW = Compiled("silu_mul", "BLOCK=1024", "bf16", 90, cache_hit=False, usage=USAGE)


def compiled(tmp_path: Path, dtypes: tuple[str, ...], arch: int) -> list[Compiled]:
    return compile_all(jobs(RECORDED, dtypes, (arch,)), tmp_path / "cache", workers=1)


def test_given_no_gpu_when_kernels_are_compiled_for_hopper_then_all_is_as_recorded(
    tmp_path: Path,
) -> None:
    rows = compiled(tmp_path, ("bf16",), 90)
    assert usage_record.differences(rows, usage_record.read_record()) == []
    names = {row.kernel for row in rows}
    assert {"rms_norm", "silu_mul", "rope_kv_write", "prefix_extend"} <= names
    assert {"decode_split", "decode_merge", "edit", "summary", "pick"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("arch", usage_record.ARCHS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_given_no_gpu_when_kernels_are_compiled_for_any_architecture_then_all_is_as_recorded(
    arch: int, dtype: str, tmp_path: Path
) -> None:
    rows = compiled(tmp_path, (dtype,), arch)
    assert usage_record.differences(rows, usage_record.read_record()) == []


def first_request(cache: Path, shape: str, arch: int) -> dict[str, list[str]]:
    """Return what the first requests of a model on a GPU find in the image's `cache`, and what not.

    Where Triton itself caches is an empty folder, as in a new pod.
    """
    own = cache.with_name("own")
    done = subprocess.run(
        [sys.executable, str(HERE / "kernel_first_request.py"), shape, str(arch)],
        env=os.environ | {"RAMPWAY_COMPILED_KERNELS": str(cache), "TRITON_CACHE_DIR": str(own)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def filled(folder: Path, *flags: str) -> Path:
    """Return a cache filled as the image's is: from a copy of the sources in another place."""
    package = folder / "sources" / "rampway_server"
    shutil.copytree(SOURCE / "kernels", package / "kernels")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(SOURCE / name, package)
    cache = folder / "cache"
    command = [sys.executable, "-m", "rampway_server.kernels.usage_record", "fill", *flags]
    environment = os.environ | {
        "PYTHONPATH": str(folder / "sources"),
        "TRITON_STORE_BINARY_ONLY": "1",
    }
    subprocess.run([*command, "--cache", str(cache)], env=environment, check=True, cwd=folder)
    return cache


def written(folder: Path) -> dict[str, int]:
    """Return when every file and folder below was last changed."""
    return {str(path): path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_given_the_servers_image_when_a_pod_runs_it_then_triton_writes_where_the_pod_may() -> None:
    text = (HERE.parents[1] / "images" / "server.Dockerfile").read_text(encoding="utf-8")
    settings = dict(re.findall(r"\b([A-Z_]+)=(\S+)", text))
    # /tmp is the folder that the operator mounts over the read-only root of its pods.
    assert settings["TRITON_CACHE_DIR"].startswith("/tmp/")
    assert 'fill --cache "$RAMPWAY_COMPILED_KERNELS"' in text
    assert settings["RAMPWAY_COMPILED_KERNELS"].startswith("/opt/rampway/")


def test_given_the_images_cache_when_the_first_requests_come_then_nothing_is_compiled(
    tmp_path: Path,
) -> None:
    cache = filled(tmp_path, "--arch", "90", "--shape", SERVED[0].name, "--workers", "1")
    before = written(cache)
    answer = first_request(cache, SERVED[0].name, 90)
    assert answer["missed"] == []
    assert len(answer["found"]) == 9
    # The root of a pod is read only.
    assert written(cache) == before
    # The check can fail: one kernel less is one kernel missed.
    for binary in cache.glob("*/_silu_mul_kernel.cubin"):
        shutil.rmtree(binary.parent)
    assert len(first_request(cache, SERVED[0].name, 90)["missed"]) == 1


@pytest.mark.slow
def test_given_the_images_whole_cache_when_any_served_model_comes_then_nothing_is_compiled(
    tmp_path: Path,
) -> None:
    cache = filled(tmp_path)
    for shape in (one for one in SERVED if one.hidden <= 4096):
        for arch in usage_record.ARCHS if shape is SERVED[0] else (90,):
            assert first_request(cache, shape.name, arch)["missed"] == [], shape.name


def test_given_a_usage_when_it_does_not_fit_then_every_reason_is_named() -> None:
    assert USAGE.faults(89) == []
    assert len(Usage(255, 8, 150_000, 1).faults(89)) == 2
    assert Usage(255, 0, 150_000, 1).faults(90) == []


def test_given_a_record_when_a_kernel_differs_then_the_gate_names_it_and_the_command() -> None:
    record = {usage_record.key_of(ROW): asdict(USAGE)}
    assert usage_record.differences([ROW], record) == []
    grown = replace(ROW, usage=replace(USAGE, registers=40))
    (said,) = usage_record.differences([grown], record)
    assert said.startswith("sm_90 bf16 silu_mul BLOCK=1024 is not as recorded")
    assert "usage_record record" in said
    spilled = replace(ROW, usage=replace(USAGE, spill_bytes=4))
    assert len(usage_record.differences([spilled], record)) == 2


def test_given_a_record_when_it_and_the_kernels_are_not_the_same_set_then_the_gate_says_so() -> (
    None
):
    assert len(usage_record.differences([ROW], {})) == 1
    other = replace(ROW, config="BLOCK=16")
    record = {usage_record.key_of(row): asdict(USAGE) for row in (ROW, other)}
    (said,) = usage_record.differences([ROW], record)
    assert said.startswith("sm_90 bf16 silu_mul BLOCK=16 is recorded but was not compiled")
    # What was not asked for is not missed.
    for unasked in (replace(other, arch=80), replace(other, dtype="fp16")):
        record = {usage_record.key_of(row): asdict(USAGE) for row in (ROW, unasked)}
        assert usage_record.differences([ROW], record) == []


def test_given_the_record_when_the_page_is_written_then_it_is_the_page_in_the_repository() -> None:
    page = usage_record.PAGE.read_text(encoding="utf-8")
    assert with_table(page, usage_record.read_record()) == page
    assert with_table(f"a\n{BEGIN}\nold\n{END}\nz", {}).startswith("a\n")
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("nothing", {})


def test_given_the_record_when_it_is_read_then_it_has_every_kernel_everywhere_and_none_spills() -> (
    None
):
    record = usage_record.read_record()
    assert {row["spill_bytes"] for row in record.values()} == {0}
    kernels: dict[str, set[tuple[str, str]]] = {}
    for key in record:
        arch, dtype, kernel, *_ = key.split(" ")
        kernels.setdefault(arch, set()).add((kernel, dtype))
    parts = ("rms_norm", "silu_mul", "rope_kv_write", "prefix_extend", "decode_split")
    wanted = {(part, name) for part in (*parts, "decode_merge") for name in usage_record.DTYPES}
    wanted |= {(part, "fp32") for part in ("edit", "summary", "pick")}
    assert kernels == {f"sm_{arch}": wanted for arch in usage_record.ARCHS}
