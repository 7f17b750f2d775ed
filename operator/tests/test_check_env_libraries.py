"""An image whose C++ library is too old is found before its engine crashes, with the library named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_env_builders import Elf, build, glibcxx, machine, needing, needs_gcc, versioned

from rampway_check_env.checks import glibc, libstdcxx, symbols
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, Verdict
from rampway_check_env.machine import Machine
from rampway_check_env.requirements import parse_requirements

STDCXX = "libstdc++.so.6"


def context(where: Machine, **wanted: Any) -> Context:
    return Context(parse_requirements(json.dumps(wanted)), where, time.monotonic() + 60)


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in findings}


@pytest.fixture
def old(tmp_path: Path) -> Machine:
    """An image whose loader finds a libstdc++ of GCC 5 first."""
    versioned(tmp_path / "old" / STDCXX, STDCXX, glibcxx(21))
    return machine(LD_LIBRARY_PATH=str(tmp_path / "old"))


@needs_gcc
@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        (">=3.4.21", Verdict.PASS),
        (">=3.4.30", Verdict.FAIL),
        (">=3.4.9", Verdict.PASS),
        ("<3.4.21", Verdict.FAIL),
    ],
)
def test_given_an_old_libstdcxx_then_its_highest_version_is_judged(
    old: Machine, wanted: str, verdict: Verdict
) -> None:
    [finding] = libstdcxx.check(context(old, glibcxx=wanted))

    assert finding.verdict is verdict
    assert "3.4.21 in " in finding.found


@needs_gcc
def test_given_an_old_libstdcxx_then_the_image_is_at_fault_and_the_remedy_names_the_path(
    old: Machine,
) -> None:
    [finding] = libstdcxx.check(context(old, glibcxx=">=3.4.30"))

    assert finding.fault is Fault.BAD_REVISION
    assert finding.required == ">=3.4.30"
    assert "LD_LIBRARY_PATH" in finding.remedy


@needs_gcc
def test_given_cxxabi_required_then_it_is_judged_beside_glibcxx(old: Machine) -> None:
    findings = libstdcxx.check(context(old, cxxabi=">=1.3.13"))

    assert verdicts(findings) == {"glibcxx": Verdict.PASS, "cxxabi": Verdict.FAIL}


def test_given_no_libstdcxx_then_it_is_skipped_unless_required(tmp_path: Path) -> None:
    empty = machine(root=str(tmp_path))

    assert verdicts(libstdcxx.check(context(empty))) == {"glibcxx": Verdict.SKIP}
    [finding] = libstdcxx.check(context(empty, glibcxx=">=3.4"))
    assert finding.fault is Fault.BAD_REVISION
    assert "install libstdc++6" in finding.remedy


@needs_gcc
def test_given_a_libstdcxx_without_versions_then_the_requirement_fails(tmp_path: Path) -> None:
    build(tmp_path / STDCXX, "int f(void) { return 1; }", "-nostdlib", f"-Wl,-soname,{STDCXX}")

    [finding] = libstdcxx.check(context(machine(LD_LIBRARY_PATH=str(tmp_path)), glibcxx=">=3.4"))

    assert finding.verdict is Verdict.FAIL
    assert "no GLIBCXX version" in finding.found


def test_given_this_machine_then_glibc_is_judged_by_what_it_says_of_itself() -> None:
    [fine] = glibc.check(context(machine(), glibc=">=2.17"))
    [newer] = glibc.check(context(machine(), glibc=">=99"))

    assert fine.verdict is Verdict.PASS
    assert newer.fault is Fault.BAD_REVISION


def test_given_a_python_linked_with_musl_then_a_glibc_requirement_fails(tmp_path: Path) -> None:
    python = tmp_path / "usr" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_bytes(Elf(soname="", interpreter="/lib/ld-musl-x86_64.so.1").pack())
    alpine = Machine(root=str(tmp_path), environ={}, executable="/usr/bin/python3", module_path=())

    assert verdicts(glibc.check(context(alpine))) == {"glibc": Verdict.SKIP}
    [finding] = glibc.check(context(alpine, glibc=">=2.17"))
    assert (finding.found, finding.fault) == ("musl", Fault.BAD_REVISION)


@needs_gcc
def test_given_an_extension_built_for_a_newer_libstdcxx_then_it_is_found_with_no_requirement(
    tmp_path: Path, old: Machine
) -> None:
    """The failure that stops engines in the field: version `GLIBCXX_3.4.30' not found."""
    newer = versioned(tmp_path / "new" / STDCXX, STDCXX, glibcxx(30))
    needing(tmp_path / "site" / "rampway_prefix_cache" / "_native.abi3.so", newer, [5, 25, 30])
    (tmp_path / "site" / "rampway_prefix_cache" / "__init__.py").touch()
    image = machine(modules=[tmp_path / "site"], **old.environ)

    [finding] = symbols.check(context(image))

    assert finding.fault is Fault.BAD_REVISION
    assert finding.found == f"{tmp_path}/old/{STDCXX} offers at most GLIBCXX_3.4.21"
    assert finding.required.startswith("GLIBCXX_3.4.30, needed by ")
    assert finding.required.endswith("_native.abi3.so and 1 more")


@needs_gcc
def test_given_an_extension_whose_versions_are_there_then_it_passes(
    tmp_path: Path, old: Machine
) -> None:
    needing(
        tmp_path / "site" / "torch" / "_C.so", Path(old.environ["LD_LIBRARY_PATH"], STDCXX), [3]
    )
    (tmp_path / "site" / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")

    [finding] = symbols.check(context(machine(modules=[tmp_path / "site"], **old.environ)))

    assert finding.verdict is Verdict.PASS


@needs_gcc
def test_given_a_library_of_a_package_that_finds_its_own_newer_libstdcxx_then_it_passes(
    tmp_path: Path, old: Machine
) -> None:
    """RPATH of the extension comes before LD_LIBRARY_PATH, as conda packages use it."""
    newer = versioned(tmp_path / "site" / "torch" / "lib" / STDCXX, STDCXX, glibcxx(30))
    flags = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib"
    needing(tmp_path / "site" / "torch" / "_C.so", newer, [30], flags)
    (tmp_path / "site" / "torch" / "__init__.py").touch()

    [finding] = symbols.check(context(machine(modules=[tmp_path / "site"], **old.environ)))

    assert finding.verdict is Verdict.PASS


@needs_gcc
def test_given_a_missing_library_then_it_is_named(tmp_path: Path) -> None:
    ghost = versioned(tmp_path / "away" / "libghost.so.1", "libghost.so.1", ["GLIBCXX_9.9"])
    extension = needing(tmp_path / "x.so", ghost, [0])
    ghost.unlink()

    [finding] = symbols.check(context(machine(), libraries=[str(extension)]))

    assert finding.found == "libghost.so.1 is not found"


def test_given_weak_versions_then_they_may_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "weak.so"
    file.write_bytes(Elf(soname="weak.so", needs={"libc.so.6": ["GLIBC_99.0?"]}).pack())

    [finding] = symbols.check(context(machine(), libraries=[str(file)]))

    assert finding.verdict is Verdict.PASS


def test_given_names_of_libraries_that_do_not_exist_then_they_are_all_named() -> None:
    [finding] = symbols.check(context(machine(), libraries=["/no/such.so", "no_such_module"]))

    assert finding.found == "not found: /no/such.so, no_such_module"
    assert finding.fault is Fault.BAD_REVISION


def test_given_no_engine_package_then_symbols_are_skipped() -> None:
    assert verdicts(symbols.check(context(machine()))) == {"symbols": Verdict.SKIP}


def test_given_only_library_requirements_then_the_check_takes_less_than_a_second(
    tmp_path: Path,
) -> None:
    """An image with torch must not import it for a question about libstdc++."""
    site = tmp_path / "torch"
    site.mkdir()
    (site / "__init__.py").write_text("import time; time.sleep(30)", encoding="utf-8")
    source = Path(libstdcxx.__file__).parents[2]
    command = [sys.executable, "-m", "rampway_check_env", "--requirements", '{"glibcxx": ">=3.4"}']
    began = time.monotonic()

    done = subprocess.run(
        command,
        env={"PYTHONPATH": f"{source}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 5  # the goal is 1 s; this machine may be busy
