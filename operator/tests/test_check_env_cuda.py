"""Drivers and GPUs, good and bad, played by a stand-in libcuda that the real check loads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from check_env_builders import machine, needs_gcc
from hardware_stand_ins import CRASH, HANG, libcuda

from rampway_check_env.checks import cuda, image_cuda
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, Verdict
from rampway_check_env.machine import Machine
from rampway_check_env.requirements import parse_requirements

pytestmark = needs_gcc

Node = Callable[..., Machine]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Make a GPU node: kernel module, device files and a libcuda that behaves as told."""

    def make(driver: str = "550.54.14", device: bool = True, **behaviour: int) -> Machine:
        libcuda(tmp_path / "lib" / "libcuda.so.1", **behaviour)
        if driver:
            file = tmp_path / "proc" / "driver" / "nvidia" / "version"
            file.parent.mkdir(parents=True)
            file.write_text(
                f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Feb 22 01:44:30 UTC 2024\n",
                encoding="utf-8",
            )
        (tmp_path / "dev").mkdir()
        if device:
            (tmp_path / "dev" / "nvidia0").touch()
        return machine(root=str(tmp_path), LD_LIBRARY_PATH="/lib")

    return make


def checked(
    where: Machine, modules: tuple[Path, ...] = (), timeout: float = 60, **wanted: Any
) -> dict[str, Finding]:
    where = Machine(where.root, where.environ, where.executable, tuple(map(str, modules)))
    context = Context(parse_requirements(json.dumps(wanted)), where, time.monotonic() + timeout)
    seen = cuda.look(context)
    findings = [*cuda.check(context, seen), *image_cuda.check(context, seen)]
    return {finding.check: finding for finding in findings}


def torch_for(tmp_path: Path, cuda_version: str) -> tuple[Path, ...]:
    """Return a site folder with a torch that was built for this CUDA version."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(
        f"from typing import Optional\n__version__ = '2.10.0'\ncuda: Optional[str] = {cuda_version!r}\n",
        encoding="utf-8",
    )
    return (tmp_path / "site",)


def test_given_a_good_node_then_driver_and_gpus_are_reported(node: Node) -> None:
    found = checked(node())

    assert found["cudaDriver"].verdict is Verdict.PASS
    assert found["cudaDriver"].found == "550.54.14 (CUDA 12.8) by the kernel module"
    assert found["gpu"].found.startswith("2 visible: NVIDIA H200 (9.0, 141Gi)")


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        (">=550.54.14", Verdict.PASS),
        (">=550.54.15", Verdict.FAIL),
        (">=535,<560", Verdict.PASS),
        (">=570", Verdict.FAIL),
    ],
)
def test_given_a_driver_requirement_then_an_older_driver_is_a_bad_node(
    node: Node, wanted: str, verdict: Verdict
) -> None:
    finding = checked(node(), cudaDriver=wanted)["cudaDriver"]

    assert finding.verdict is verdict
    assert finding.fault is (Fault.BAD_NODE if verdict is Verdict.FAIL else None)


def test_given_the_open_kernel_module_then_its_version_is_read_too(
    node: Node, tmp_path: Path
) -> None:
    gpu_node = node()
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
        encoding="utf-8",
    )

    assert checked(gpu_node)["cudaDriver"].found.startswith("570.86.15")


def test_given_no_kernel_module_file_then_the_name_of_libcuda_tells_the_driver(
    node: Node, tmp_path: Path
) -> None:
    gpu_node = node(driver="")
    (tmp_path / "lib/libcuda.so.1").rename(tmp_path / "lib/libcuda.so.535.161.08")
    (tmp_path / "lib/libcuda.so.1").symlink_to("libcuda.so.535.161.08")

    finding = checked(gpu_node, cudaDriver=">=550")["cudaDriver"]

    assert finding.found.startswith("535.161.08 (CUDA 12.8) by the name of libcuda")
    assert finding.fault is Fault.BAD_NODE


def test_given_a_machine_without_gpu_then_nothing_is_judged_unless_required(tmp_path: Path) -> None:
    cpu = machine(root=str(tmp_path))

    assert {f.verdict for f in checked(cpu).values()} == {Verdict.SKIP}
    required = checked(cpu, cudaDriver=">=550", gpu={"count": 1})
    assert required["cudaDriver"].found == "no NVIDIA driver"
    assert required["gpu"].found == "0 of 1 GPUs visible"
    assert {required[name].fault for name in ("cudaDriver", "gpu")} == {Fault.BAD_NODE}


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"count": 2}, ""),
        ({"count": 3}, "2 of 3 GPUs visible"),
        ({"computeCapability": ["9.0", "10.0"]}, ""),
        ({"computeCapability": ["8.0"]}, "GPU 0 (NVIDIA H200) has compute capability 9.0"),
        ({"freeMemory": "100Gi"}, ""),
        ({"freeMemory": "101Gi"}, "GPU 0 (NVIDIA H200) has 100Gi of 141Gi free"),
    ],
)
def test_given_a_gpu_requirement_then_what_is_missing_is_named(
    node: Node, wanted: dict[str, Any], problem: str
) -> None:
    finding = checked(node(), gpu=wanted)["gpu"]

    assert finding.verdict is (Verdict.FAIL if problem else Verdict.PASS)
    if problem:
        assert (finding.found, finding.fault) == (problem, Fault.BAD_NODE)


def test_given_a_gpu_that_takes_no_context_then_the_call_and_code_are_named(node: Node) -> None:
    finding = checked(node(BROKEN=1), gpu={"freeMemory": "1Gi"})["gpu"]

    assert finding.found == "GPU 1: cuDevicePrimaryCtxRetain failed with code 2"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (803, "driver and libcuda do not belong together"),
        (999, "unknown error"),
        (100, "no CUDA device"),
    ],
)
def test_given_a_driver_that_refuses_then_the_node_is_bad_and_the_code_explained(
    node: Node, code: int, words: str
) -> None:
    finding = checked(node(INIT=code))["gpu"]

    assert finding.fault is Fault.BAD_NODE
    assert finding.found == f"cuInit failed with code {code} ({words})"


def test_given_a_driver_that_crashes_then_the_node_is_bad_and_the_signal_named(node: Node) -> None:
    finding = checked(node(INIT=CRASH))["gpu"]

    assert finding.fault is Fault.BAD_NODE
    assert "SIGSEGV" in finding.found


def test_given_a_driver_that_hangs_then_the_check_ends_and_blames_nobody(node: Node) -> None:
    began = time.monotonic()

    finding = checked(node(INIT=HANG), timeout=2)["gpu"]

    assert time.monotonic() - began < 15
    assert (finding.verdict, finding.fault) == (Verdict.ERROR, Fault.INFRASTRUCTURE)
    assert "did not end within" in finding.found


def test_given_a_broken_driver_but_no_gpu_for_this_pod_then_a_cpu_engine_may_start(
    node: Node,
) -> None:
    found = checked(node(device=False, INIT=999))

    assert found["gpu"].verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("image", "driver", "verdict"),
    [
        ("12.9", 12080, Verdict.PASS),
        ("12.4", 13000, Verdict.PASS),
        ("13.0", 12080, Verdict.FAIL),
        ("11.8", 12080, Verdict.PASS),
    ],
)
def test_given_an_image_for_a_newer_cuda_major_then_the_node_is_too_old(
    node: Node, tmp_path: Path, image: str, driver: int, verdict: Verdict
) -> None:
    finding = checked(node(DRIVER=driver), torch_for(tmp_path, image))["cudaRuntime"]

    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert finding.fault is Fault.BAD_NODE
        assert "image 13.0 by torch, driver 12.8" in finding.found
        assert "cuda-compat" in finding.remedy


def test_given_a_torch_for_cpu_then_there_is_no_cuda_to_compare(node: Node, tmp_path: Path) -> None:
    assert checked(node(), torch_for(tmp_path, ""))["cudaRuntime"].verdict is Verdict.SKIP
