"""torch, Triton and the prefix cache: the real ones where installed, and packages that are broken on purpose."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hardware_stand_ins import FAKE_TORCH, NATIVE_IN_PYTHON

from rampway_check_env.checks import prefix_cache, pytorch, triton_kernel
from rampway_check_env.checks.cuda import Cuda
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, Verdict
from rampway_check_env.machine import Machine
from rampway_check_env.modules import installed_version, package_folders, shared_objects
from rampway_check_env.requirements import parse_requirements

CPU = Cuda()
GPU = Cuda(gpus=({"index": 0, "name": "NVIDIA H200", "capability": "9.0", "total": 141 << 30},))


def installed(name: str) -> Any:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed")


def image(site: Path | None = None, **environ: str) -> Machine:
    """Return an image whose packages are those in `site`, or this machine's own."""
    if site is None:
        return Machine(environ={**os.environ, **environ})
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(site)}
    return Machine(environ={**base, **environ}, module_path=(str(site),))


def context(machine: Machine, timeout: float = 120, **wanted: Any) -> Context:
    return Context(parse_requirements(json.dumps(wanted)), machine, time.monotonic() + timeout)


def package(site: Path, name: str, source: str, **files: str) -> Path:
    folder = site / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(source, encoding="utf-8")
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text, encoding="utf-8")
    return site


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def fake_torch(site: Path, *, available: bool = True, product: str = "return self") -> Path:
    return package(site, "torch", FAKE_TORCH.format(available=available, product=product))


@installed("torch")
def test_given_the_real_torch_when_required_then_it_is_imported_and_its_version_judged() -> None:
    [finding] = pytorch.check(context(image(), torch=">=99"), CPU)

    assert finding.found.startswith(installed_version("torch", tuple(sys.path)) or "?")
    assert finding.fault is Fault.BAD_REVISION
    assert finding.remedy == "install torch >=99 in the image"


def test_given_no_requirement_and_no_gpu_then_torch_is_never_imported(tmp_path: Path) -> None:
    site = package(tmp_path, "torch", "raise SystemExit('imported')")

    [finding] = pytorch.check(context(image(site)), CPU)

    assert finding.verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise SystemExit(7)", "exit code 7"),
    ],
)
def test_given_a_torch_that_cannot_be_imported_then_the_image_is_at_fault(
    tmp_path: Path, source: str, words: str
) -> None:
    [finding] = pytorch.check(context(image(package(tmp_path, "torch", source)), torch=">=2"), CPU)

    assert finding.fault is Fault.BAD_REVISION
    assert words in finding.found


def test_given_a_torch_that_hangs_then_nobody_is_at_fault(tmp_path: Path) -> None:
    site = package(tmp_path, "torch", "import time; time.sleep(60)")

    [finding] = pytorch.check(context(image(site), timeout=1, torch=">=2"), CPU)

    assert (finding.verdict, finding.fault) == (Verdict.ERROR, Fault.INFRASTRUCTURE)


def test_given_a_torch_that_is_missing_then_only_a_requirement_fails(tmp_path: Path) -> None:
    [skip] = pytorch.check(context(image(tmp_path)), GPU)
    [fail] = pytorch.check(context(image(tmp_path), torch=">=2"), GPU)

    assert (skip.verdict, fail.fault) == (Verdict.SKIP, Fault.BAD_REVISION)


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        ({"available": False}, "sees no GPU though the driver shows one"),
        ({"product": "raise RuntimeError('CUDA error: out of memory')"}, "out of memory"),
        ({"product": "return Tensor(0.5)"}, "off by 0.5"),
    ],
)
def test_given_a_gpu_that_torch_cannot_use_then_the_node_is_at_fault(
    tmp_path: Path, torch: dict[str, Any], words: str
) -> None:
    [finding] = pytorch.check(context(image(fake_torch(tmp_path, **torch))), GPU)

    assert finding.fault is Fault.BAD_NODE
    assert words in finding.found


def test_given_a_gpu_that_torch_can_use_then_the_product_is_reported(tmp_path: Path) -> None:
    [finding] = pytorch.check(context(image(fake_torch(tmp_path))), GPU)

    assert finding.found == "2.10.0+cu128 (CUDA 12.8, product on the GPU correct)"


@installed("triton")
@installed("torch")
def test_given_the_real_triton_without_gpu_then_a_kernel_runs_in_the_interpreter_and_is_said_to() -> (
    None
):
    found = by_check(
        triton_kernel.check(context(image(), triton=">=3.4,<4", tritonCompile=True), CPU)
    )

    assert found["triton"].verdict is Verdict.PASS
    assert found["tritonCompile"].verdict is Verdict.PASS, found["tritonCompile"].found
    assert "interpreter, no GPU here" in found["tritonCompile"].found


@installed("triton")
def test_given_the_real_triton_then_its_version_is_known_without_importing_it() -> None:
    found = by_check(triton_kernel.check(context(image(), triton=">=99"), CPU))

    assert found["triton"].fault is Fault.BAD_REVISION
    assert found["tritonCompile"].verdict is Verdict.SKIP


def triton_site(tmp_path: Path, body: str) -> Path:
    """Return a site with torch and a Triton whose language module does `body`."""
    fake_torch(tmp_path)
    (tmp_path / "triton-3.5.0.dist-info").mkdir()
    return package(tmp_path, "triton", "jit = lambda f: f", language=body)


def test_given_a_triton_that_cannot_compile_then_the_image_is_at_fault(tmp_path: Path) -> None:
    site = triton_site(tmp_path, "raise RuntimeError('Failed to find C compiler')")

    found = by_check(triton_kernel.check(context(image(site)), GPU))

    assert found["triton"].found == "3.5.0"
    assert found["tritonCache"].verdict is Verdict.PASS
    assert found["tritonCompile"].fault is Fault.BAD_REVISION
    assert "Failed to find C compiler" in found["tritonCompile"].found


def test_given_a_cache_folder_that_cannot_be_written_then_it_is_found_before_compiling(
    tmp_path: Path,
) -> None:
    site = triton_site(tmp_path, "raise RuntimeError('never reached')")
    (tmp_path / "file").touch()

    where = image(site, TRITON_CACHE_DIR=str(tmp_path / "file" / "cache"))
    found = by_check(triton_kernel.check(context(where), GPU))

    assert found["tritonCache"].fault is Fault.BAD_REVISION
    assert "TRITON_CACHE_DIR" in found["tritonCache"].remedy
    assert "tritonCompile" not in found


def test_given_no_triton_then_only_a_requirement_fails(tmp_path: Path) -> None:
    assert triton_kernel.check(context(image(tmp_path)), GPU)[0].verdict is Verdict.SKIP
    for wanted in ({"triton": ">=3"}, {"tritonCompile": True}):
        [finding] = triton_kernel.check(context(image(tmp_path), **wanted), CPU)
        assert finding.fault is Fault.BAD_REVISION


@installed("rampway_prefix_cache")
def test_given_the_real_prefix_cache_then_its_tree_works_and_is_native() -> None:
    [finding] = prefix_cache.check(context(image(), prefixCache={"backend": "rust"}))

    assert finding.verdict is Verdict.PASS, finding.found
    assert finding.found.startswith("rust")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('raise ImportError("version `GLIBCXX_3.4.30\' not found")', "GLIBCXX_3.4.30"),
        ("import os; os.abort()", "SIGABRT"),
        (NATIVE_IN_PYTHON.format(matched=48), "is no native library"),
    ],
)
def test_given_a_prefix_cache_that_is_broken_or_not_rust_then_the_image_is_at_fault(
    tmp_path: Path, source: str, words: str
) -> None:
    site = package(tmp_path, "rampway_prefix_cache", source, _native="")

    [finding] = prefix_cache.check(context(image(site), prefixCache={}))

    assert finding.fault is Fault.BAD_REVISION
    assert words in finding.found


def test_given_no_prefix_cache_then_only_a_requirement_fails(tmp_path: Path) -> None:
    [skip] = prefix_cache.check(context(image(tmp_path)))
    [fail] = prefix_cache.check(context(image(tmp_path), prefixCache={"backend": "rust"}))

    assert (skip.verdict, fail.fault) == (Verdict.SKIP, Fault.BAD_REVISION)


def test_given_packages_then_they_are_found_without_importing_them(tmp_path: Path) -> None:
    package(tmp_path, "Mine", "raise SystemExit(1)")
    (tmp_path / "Mine" / "lib").mkdir()
    for file in ("_C.cpython-311-x86_64-linux-gnu.so", "lib/libmine.so.1.2", "lib/notes.so.txt"):
        (tmp_path / "Mine" / file).touch()
    (tmp_path / "my_dist-1.2.3.dist-info").mkdir()
    path = (str(tmp_path),)

    names = [Path(f).name for f in shared_objects("Mine", path)]
    assert names == ["_C.cpython-311-x86_64-linux-gnu.so", "libmine.so.1.2"]
    assert [Path(f).name for f in shared_objects("Mine._C", path)] == names[:1]
    assert package_folders("Other", path) == ()
    assert installed_version("my-dist", path) == "1.2.3"
    assert "Mine" not in sys.modules
