from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rampway_operator.cluster.check_env_payload import (
    SIZE_LIMIT,
    check_env_base64,
    pack_check_env,
)
from rampway_operator.cluster.merge import merge_diff, paths


def test_given_the_same_sources_when_packed_twice_then_the_bytes_are_equal_and_small() -> None:
    packed = pack_check_env()
    assert packed == pack_check_env()
    assert len(packed) < SIZE_LIMIT
    assert base64.b64decode(check_env_base64()) == packed


def test_given_the_packed_file_when_looked_into_then_it_holds_sources_alone() -> None:
    with zipfile.ZipFile(io.BytesIO(pack_check_env())) as archive:
        names = archive.namelist()
    assert names[0] == "__main__.py"
    assert all(name == "__main__.py" or name.startswith("rampway_check_env/") for name in names)
    assert all(name.endswith(".py") for name in names)


def test_given_the_packed_file_alone_when_run_by_a_bare_python_then_it_reports(
    tmp_path: Path,
) -> None:
    packed = tmp_path / "check_env.pyz"
    packed.write_bytes(pack_check_env())
    command = [
        sys.executable,
        "-I",
        "-S",
        str(packed),
        "--json",
        "--requirements",
        '{"glibc": ">=2.0"}',
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def merged(target: object, patch: object) -> object:
    """RFC 7396, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


LEAVES = st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=2)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), LEAVES | inner, max_size=3),
    max_leaves=8,
)


def filled(value: object) -> object:
    """Without empty objects below the root: a merge patch cannot tell them from absent ones."""
    if not isinstance(value, dict):
        return value
    return {k: filled(v) for k, v in value.items() if v != {}}


@given(OBJECTS, OBJECTS)
def test_given_any_two_objects_when_patched_by_their_difference_then_the_second_comes_out(
    current: dict[str, object], wanted: dict[str, object]
) -> None:
    patch = merge_diff(current, wanted)
    assert filled(merged(current, patch)) == filled(wanted)
    assert (patch == {}) == (current == wanted)


def test_given_a_patch_when_asked_for_its_paths_then_they_are_dotted() -> None:
    patch = merge_diff({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"b": 2, "c": [1, 2]}})
    assert paths(patch) == ("a.b", "a.c", "d")
