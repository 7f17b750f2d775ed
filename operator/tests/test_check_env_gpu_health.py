"""MIG mode, memory errors and Xid messages, told by a stand-in NVML and a kernel log of our own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from check_env_builders import machine, needs_gcc
from hardware_stand_ins import CRASH, HANG, nvml

from rampway_check_env.checks import gpu_health
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, Verdict
from rampway_check_env.machine import Machine
from rampway_check_env.requirements import parse_requirements

XID = "4,1,%d,-;NVRM: Xid (PCI:0000:3b:00): %d, pid='<unknown>', name=<unknown>, something\n"

Node = Callable[..., Machine]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Make a node whose NVML behaves as told, with a kernel log where one is given."""

    def make(log: str | None = None, flags: tuple[str, ...] = (), **behaviour: int) -> Machine:
        nvml(tmp_path / "lib" / "libnvidia-ml.so.1", *flags, **behaviour)
        if log is not None:
            (tmp_path / "dev").mkdir()
            (tmp_path / "dev" / "kmsg").write_text(log, encoding="utf-8")
        return machine(root=str(tmp_path), LD_LIBRARY_PATH="/lib")

    return make


def checked(where: Machine, timeout: float = 60, **gpu: Any) -> dict[str, Finding]:
    wanted = parse_requirements(json.dumps({"gpu": gpu} if gpu else {}))
    findings = gpu_health.check(Context(wanted, where, time.monotonic() + timeout))
    return {finding.check: finding for finding in findings}


@needs_gcc
def test_given_healthy_gpus_then_mode_and_errors_are_reported_with_no_requirement(
    node: Node,
) -> None:
    found = checked(node())

    assert found["mig"].found == "GPU 0: Disabled, GPU 1: Disabled"
    assert found["ecc"].found == "0 uncorrected errors on 2 GPUs"
    assert found["xid"].verdict is Verdict.SKIP


@needs_gcc
@pytest.mark.parametrize(
    ("behaviour", "wanted", "check", "problem"),
    [
        ({"MIG": 1}, {"mig": "Enabled"}, "mig", ""),
        ({"MIG": 1}, {"mig": "Disabled"}, "mig", "GPU 0: Enabled"),
        ({"MIG": 0}, {"mig": "Enabled"}, "mig", "GPU 0: Disabled"),
        ({"MIG": -1}, {"mig": "Disabled"}, "mig", ""),
        ({"MIG": -1}, {"mig": "Enabled"}, "mig", "GPU 0: not supported"),
        ({"ERRORS": 3}, {}, "ecc", ""),
        ({"ERRORS": 3}, {"eccErrors": 3}, "ecc", ""),
        ({"ERRORS": 3}, {"eccErrors": 2}, "ecc", "GPU 1: 3 uncorrected errors"),
        ({"PENDING": 1}, {}, "ecc", "GPU 0: a memory row waits for a reset to be remapped"),
        ({"FAILED": 1}, {}, "ecc", "GPU 0: a memory row could not be remapped"),
        ({"ECC": 0}, {"eccErrors": 0}, "ecc",
         "GPU 0: memory errors are not counted (ECC is off or missing)"),
    ],
)  # fmt: skip
def test_given_a_gpu_state_then_the_node_is_judged_by_it(
    node: Node, behaviour: dict[str, int], wanted: dict[str, Any], check: str, problem: str
) -> None:
    finding = checked(node(**behaviour), **wanted)[check]

    assert finding.verdict is (Verdict.FAIL if problem else Verdict.PASS)
    if problem:
        assert (finding.found, finding.fault) == (problem, Fault.BAD_NODE)


@needs_gcc
def test_given_an_nvml_without_row_remapping_then_the_rest_is_reported(node: Node) -> None:
    assert checked(node(flags=("-DOLD",)), eccErrors=0)["ecc"].verdict is Verdict.PASS


@needs_gcc
@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"INIT": 18}, "library and kernel module have different versions"),
        ({"INIT": CRASH}, "SIGSEGV"),
        ({"INIT": HANG}, "did not end within"),
        ({"LOST": 1}, "the GPU is lost"),
        ({"COUNT": 0}, "NVML shows no GPU"),
    ],
)
def test_given_an_nvml_that_fails_then_only_a_requirement_makes_it_an_error(
    node: Node, behaviour: dict[str, int], words: str
) -> None:
    where = node(**behaviour)

    free, bound = checked(where, timeout=2), checked(where, timeout=2, mig="Enabled", eccErrors=0)

    assert {free[name].verdict for name in ("mig", "ecc")} == {Verdict.SKIP}
    assert {bound[name].fault for name in ("mig", "ecc")} == {Fault.INFRASTRUCTURE}
    assert words in bound["mig"].found


@needs_gcc
@pytest.mark.parametrize(
    ("log", "most", "problem"),
    [
        ("", 0, ""),
        (XID % (1, 31) + XID % (2, 13) + XID % (3, 43), 0, ""),
        (XID % (1, 79), 0, "1 in the kernel log, the last 79 (GPU has fallen off the bus) of GPU 0000:3b:00"),
        (XID % (1, 48) + XID % (2, 64), 1, "2 in the kernel log, the last 64 (row remapping failed) of GPU 0000:3b:00"),
        (XID % (1, 79), 1, ""),
    ],
)  # fmt: skip
def test_given_xid_messages_then_only_those_of_failing_hardware_count(
    node: Node, log: str, most: int, problem: str
) -> None:
    """Xids 13, 31 and 43 are what a program's own fault looks like."""
    finding = checked(node(log), xidErrors=most)["xid"]

    assert finding.verdict is (Verdict.FAIL if problem else Verdict.PASS)
    if problem:
        assert (finding.found, finding.fault) == (problem, Fault.BAD_NODE)


def test_given_no_kernel_log_then_a_requirement_on_it_cannot_be_checked(tmp_path: Path) -> None:
    finding = checked(machine(root=str(tmp_path)), xidErrors=0)["xid"]

    assert finding.fault is Fault.INFRASTRUCTURE
    assert finding.found.startswith("/dev/kmsg cannot be read: ")
    assert "mount /dev/kmsg" in finding.remedy
