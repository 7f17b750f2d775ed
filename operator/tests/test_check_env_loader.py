"""The file that a name would load is found by the rules of ld.so, without loading it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from check_env_builders import Elf, build, glibcxx, machine, needing, needs_gcc, versioned

from rampway_check_env.elf import read_elf
from rampway_check_env.ldcache import parse_ld_cache
from rampway_check_env.loader import Loader
from rampway_check_env.machine import Machine

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
STDCXX = "libstdc++.so.6"


@needs_gcc
def test_given_a_library_path_when_asked_then_its_folder_wins_over_the_cache(
    tmp_path: Path,
) -> None:
    old = versioned(tmp_path / STDCXX, STDCXX, glibcxx(21))

    loader = Loader(machine(LD_LIBRARY_PATH=f"/nonexistent:{tmp_path}"))

    assert loader.from_python(STDCXX) == str(old)


@needs_gcc
def test_given_runpath_and_library_path_when_an_extension_is_loaded_then_the_library_path_wins(
    tmp_path: Path,
) -> None:
    provider = versioned(tmp_path / "own" / "libp.so.1", "libp.so.1", ["P_1"])
    other = versioned(tmp_path / "env" / "libp.so.1", "libp.so.1", ["P_1"])
    runpath = needing(tmp_path / "r.so", provider, [0], "-Wl,--enable-new-dtags,-rpath,$ORIGIN/own")
    rpath = needing(tmp_path / "p.so", provider, [0], "-Wl,--disable-new-dtags,-rpath,$ORIGIN/own")

    loader = Loader(machine(LD_LIBRARY_PATH=str(other.parent)))

    assert loader.loaded_with(str(runpath))["libp.so.1"] == str(other)
    assert loader.loaded_with(str(rpath))["libp.so.1"] == str(provider)


@needs_gcc
def test_given_an_rpath_of_the_asker_when_its_library_needs_another_then_it_counts_for_that_too(
    tmp_path: Path,
) -> None:
    inner = versioned(tmp_path / "lib" / "libinner.so.1", "libinner.so.1", ["I_1"])
    outer = needing(tmp_path / "lib" / "libouter.so.1", inner, [0], "-Wl,-soname,libouter.so.1")
    source = "int use(void); int g(void) { return use(); }"
    flags = [
        "-nostdlib",
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib",
        "-Wl,--allow-shlib-undefined",
    ]
    extension = build(tmp_path / "e.so", source, str(outer), *flags)

    loaded = Loader(machine()).loaded_with(str(extension))

    assert (loaded["libouter.so.1"], loaded["libinner.so.1"]) == (str(outer), str(inner))


@needs_gcc
def test_given_what_python_has_loaded_already_when_an_extension_asks_then_that_is_used(
    tmp_path: Path,
) -> None:
    """The soname in the process wins over any RPATH: this is why an old libstdc++ sticks."""
    own = versioned(tmp_path / "libc.so.6", "libc.so.6", ["GLIBC_2.0"])
    extension = needing(tmp_path / "e.so", own, [0], "-Wl,--disable-new-dtags,-rpath,$ORIGIN")
    loader = Loader(machine())

    assert loader.loaded_with(str(extension))["libc.so.6"] == loader.in_python()["libc.so.6"]


def test_given_an_object_of_another_kind_in_the_way_when_asked_then_it_is_passed_over(
    tmp_path: Path,
) -> None:
    (tmp_path / STDCXX).write_bytes(Elf(bits=32, soname=STDCXX).pack())

    found = Loader(machine(LD_LIBRARY_PATH=str(tmp_path))).from_python(STDCXX)

    assert found != str(tmp_path / STDCXX)


def test_given_a_name_nobody_has_when_asked_then_nothing_is_found() -> None:
    assert Loader(machine()).from_python("libnobody-has-this.so.1") is None


def test_given_a_ring_of_libraries_when_closed_over_then_it_ends(tmp_path: Path) -> None:
    for name, needed in (("liba.so", "libb.so"), ("libb.so", "liba.so")):
        elf = Elf(soname=name, needed=[needed], runpath="$ORIGIN")
        (tmp_path / name).write_bytes(elf.pack())
    machine_type = read_elf(str(Path("/proc/self/exe").resolve())).machine
    if machine_type != 62:
        pytest.skip("the hand-made objects are for x86-64")

    loaded = Loader(machine(LD_LIBRARY_PATH=str(tmp_path))).loaded_with(str(tmp_path / "liba.so"))

    assert {"liba.so", "libb.so"} <= set(loaded)


@needs_gcc
@pytest.mark.skipif(LDCONFIG is None, reason="ldconfig is not installed")
def test_given_a_cache_made_by_ldconfig_when_parsed_then_it_has_the_library(tmp_path: Path) -> None:
    assert LDCONFIG is not None
    library = versioned(tmp_path / "lib" / "libown.so.1", "libown.so.1", ["O_1"])
    config = tmp_path / "ld.so.conf"
    config.write_text(f"{library.parent}\n", encoding="utf-8")
    cache = tmp_path / "ld.so.cache"

    subprocess.run(
        [LDCONFIG, "-X", "-f", str(config), "-C", str(cache)], check=True, capture_output=True
    )

    assert parse_ld_cache(cache.read_bytes())["libown.so.1"] == [str(library)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ld.so-1.7.0\0",
        b"glibc-ld.so.cache1.1",
        b"glibc-ld.so.cache1.1" + b"\xff" * 28,
        b"x" * 99,
    ],
)
def test_given_a_damaged_cache_when_parsed_then_it_is_empty(data: bytes) -> None:
    assert parse_ld_cache(data) == {}


def test_given_the_real_cache_when_cut_anywhere_then_parsing_never_fails() -> None:
    data = Machine().read_bytes("/etc/ld.so.cache", limit=1 << 16) or b""

    for cut in range(0, len(data), 509):
        parse_ld_cache(data[:cut])
