"""ELF files are read as the loader reads them, and damaged ones are errors, never crashes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from check_env_builders import Elf, build, needing, needs_gcc, versioned
from hypothesis import given, settings
from hypothesis import strategies as st

from rampway_check_env.elf import ElfError, NeededVersion, read_elf
from rampway_check_env.loader import Loader
from rampway_check_env.machine import Machine

KINDS = [(bits, order) for bits in (32, 64) for order in "<>"]


@pytest.mark.parametrize(("bits", "order"), KINDS)
def test_given_any_class_and_byte_order_when_read_then_names_and_versions_are_found(
    tmp_path: Path, bits: int, order: str
) -> None:
    file = tmp_path / "libx.so"
    file.write_bytes(
        Elf(
            bits,
            order,
            soname="libx.so.6",
            needed=["libc.so.6", "libm.so.6"],
            runpath="$ORIGIN/lib:/opt/lib",
            defines=["GLIBCXX_3.4", "GLIBCXX_3.4.30"],
            needs={"libc.so.6": ["GLIBC_2.34", "GLIBC_2.17?"], "libm.so.6": ["GLIBC_2.29"]},
        ).pack()
    )

    found = read_elf(str(file))

    assert (found.bits, found.little_endian, found.machine) == (bits, order == "<", 62)
    assert (found.soname, found.needed) == ("libx.so.6", ("libc.so.6", "libm.so.6"))
    assert found.runpath == ("$ORIGIN/lib", "/opt/lib")
    assert found.defines == ("GLIBCXX_3.4", "GLIBCXX_3.4.30")
    assert found.needs == {
        "libc.so.6": (
            NeededVersion("GLIBC_2.34", weak=False),
            NeededVersion("GLIBC_2.17", weak=True),
        ),
        "libm.so.6": (NeededVersion("GLIBC_2.29", weak=False),),
    }


@needs_gcc
def test_given_a_compiled_object_when_read_then_it_agrees_with_the_compiler(tmp_path: Path) -> None:
    provider = versioned(tmp_path / "libp.so.1", "libp.so.1", ["P_1.0", "P_1.1"])
    user = needing(tmp_path / "libuser.so", provider, [0, 1], "-Wl,-rpath,/a:/b")

    assert read_elf(str(provider)).defines == ("P_1.0", "P_1.1")
    found = read_elf(str(user))
    assert found.needed == ("libp.so.1",)
    assert {v.name for v in found.needs["libp.so.1"]} == {"P_1.0", "P_1.1"}
    assert found.rpath + found.runpath == ("/a", "/b")


@needs_gcc
def test_given_an_object_without_versions_when_read_then_both_lists_are_empty(
    tmp_path: Path,
) -> None:
    found = read_elf(str(build(tmp_path / "plain.so", "int f(void) { return 1; }", "-nostdlib")))

    assert (found.defines, found.needs) == ((), {})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fEL",
        b"#!/bin/sh\n",
        b"\x7fELF" + bytes(12),
        b"\x7fELF\x03\x01" + bytes(60),
        b"\x7fELF\x02\x01",
    ],
    ids=["empty", "cut", "script", "class 0", "class 3", "cut header"],
)
def test_given_what_is_no_elf_file_when_read_then_the_error_names_the_file(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(content)

    with pytest.raises(ElfError, match=r"x\.so: "):
        read_elf(str(file))


def test_given_a_linker_script_in_place_of_a_library_then_the_loader_passes_it_over(
    tmp_path: Path,
) -> None:
    (tmp_path / "libc.so.6").write_text("GROUP ( /lib/libc.so.6 )", encoding="utf-8")
    loader = Loader(Machine(environ={"LD_LIBRARY_PATH": str(tmp_path)}))

    assert loader.from_python("libc.so.6") != str(tmp_path / "libc.so.6")


SAMPLE = Elf(
    soname="libx.so.6",
    needed=["libc.so.6"],
    defines=["A_1", "A_2"],
    needs={"libc.so.6": ["GLIBC_2.34"]},
).pack()


@settings(max_examples=300, deadline=2000)
@given(
    cut=st.integers(0, len(SAMPLE)),
    changes=st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), max_size=12),
)
def test_a_damaged_file_is_read_or_refused_but_never_crashes_or_hangs(
    tmp_path_factory: pytest.TempPathFactory, cut: int, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(SAMPLE)
    for at, value in changes:
        content[at] = value
    file = tmp_path_factory.getbasetemp() / "damaged.so"
    file.write_bytes(bytes(content[:cut]))

    with contextlib.suppress(ElfError):
        read_elf(str(file))


def test_given_counts_that_lie_when_read_then_it_ends_quickly(tmp_path: Path) -> None:
    """A step of 16 over 65,535 entries that all stand on the same few bytes."""
    content = bytearray(SAMPLE)
    file = tmp_path / "lies.so"
    at = content.index(Elf()._pack("QQ", 0x6FFFFFFD, 3))
    content[at : at + 16] = Elf()._pack("QQ", 0x6FFFFFFD, 0xFFFFFFFF)
    file.write_bytes(bytes(content))

    with pytest.raises(ElfError, match="claim"):
        read_elf(str(file))


def test_given_this_python_then_the_model_of_the_loader_agrees_with_the_loader_itself() -> None:
    """What ctypes really loads is what `from_python` says, for the libraries every image has."""
    code = (
        "import ctypes, sys; [ctypes.CDLL(n) for n in sys.argv[1:]]; "
        "print(*{l.split()[-1] for l in open('/proc/self/maps') if '.so' in l}, sep='\\n')"
    )
    names = ["libstdc++.so.6", "libc.so.6", "libm.so.6", "libgcc_s.so.1"]
    told = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, check=True
    )
    mapped = {str(Path(line).resolve()) for line in told.stdout.split()}
    loader = Loader(Machine())

    for name in names:
        found = loader.from_python(name)
        assert found is not None
        assert str(Path(found).resolve()) in mapped
