"""The tests of decide and plan find faults: every seeded one is killed (make test-full)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import MUTANTS, Mutant

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src"


def test_given_the_mutants_then_each_still_fits_the_code_and_names_a_test() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 15
    for mutant in MUTANTS:
        code = (SOURCES / "rampway_operator" / "core" / mutant.file).read_text(encoding="utf-8")
        assert code.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} was edited, adapt it"
        file, words = mutant.test
        text = (TESTS / file).read_text(encoding="utf-8")
        assert any(word in text for word in words.split(" and ")[0].split(" or ")), mutant.name


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name.replace(" ", "-"))
def test_given_a_seeded_fault_when_the_tests_run_then_it_is_found(
    mutant: Mutant, tmp_path: Path
) -> None:
    sources = tmp_path / "src"
    shutil.copytree(SOURCES, sources)
    target = sources / "rampway_operator" / "core" / mutant.file
    code = target.read_text(encoding="utf-8")
    target.write_text(code.replace(mutant.old, mutant.new), encoding="utf-8")
    file, words = mutant.test
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-o", f"pythonpath={sources}", str(TESTS / file), "-k", words]
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert found.returncode == 1, f"survived {mutant.test}:\n{found.stdout[-2000:]}"
