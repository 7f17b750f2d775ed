"""Every kernel compiles for a GPU that is not here, without spilling and within its shared memory."""

from __future__ import annotations

import os

import pytest

from rampway_server.kernels.ahead_of_time import SHARED_LIMIT_BYTES, Usage, compile_launch

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)
pytest.importorskip("triton", reason="triton is not installed: kernels are not compiled")

from rampway_server.kernels.launches import SHAPES, Shape, launches

ALL_ARCHITECTURES = sorted(set(SHARED_LIMIT_BYTES) - {90})


@pytest.fixture(autouse=True)
def _pinned_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_given_no_gpu_when_kernels_are_compiled_for_hopper_then_none_spills(shape: Shape) -> None:
    assert_fit(shape, "bf16", 90)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("arch", [*ALL_ARCHITECTURES, 90])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_given_no_gpu_when_kernels_are_compiled_for_any_architecture_then_none_spills(
    shape: Shape, arch: int, dtype: str
) -> None:
    assert_fit(shape, dtype, arch)


def test_given_a_usage_when_it_does_not_fit_then_every_reason_is_named() -> None:
    assert Usage(32, 0, 50_000).faults(89) == []
    assert len(Usage(255, 8, 150_000).faults(89)) == 2
    assert Usage(255, 0, 150_000).faults(90) == []


def assert_fit(shape: Shape, dtype: str, arch: int) -> None:
    faults = {
        launch.name: found
        for launch in launches(shape, dtype)
        if (found := compile_launch(launch, arch).faults(arch))
    }
    assert faults == {}
