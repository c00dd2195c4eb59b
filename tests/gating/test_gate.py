"""The rules by which a run of tests passes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from tests.gate import NAMES, SECOND_TRY, expired_names, name_of

ROOT = Path(__file__).parents[2]
PASSES_THE_SECOND_TIME = """
import pathlib, pytest

@pytest.mark.xdist_group("those")
@pytest.mark.parametrize("number", range({count}))
def test_flaky(number):
    seen = pathlib.Path(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        raise RuntimeError("only the first time")
"""
CONFTEST = """
from tests import gate

def pytest_configure(config):
    config.pluginmanager.register(gate)

def pytest_addoption(parser):
    gate.add_options(parser)
"""
SKIPS_THE_SECOND_TIME = """
import pathlib, pytest

def test_gone():
    if pathlib.Path("gone").exists():
        pytest.skip("the server is gone")
    pathlib.Path("gone").touch()
    raise RuntimeError("only the first time")
"""
ENDS_ITS_PROCESS = """
import os, pathlib

def test_ends():
    seen = pathlib.Path("ended")
    if not seen.exists():
        seen.touch()
        os._exit(1)
"""
FAILS = "def test_broken():\n    assert 1 == 2\n"


@pytest.fixture
def run(tmp_path: Path):
    """Run pytest on a file, with the gate as it is used here."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "strict.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    environment = {key: each for key, each in os.environ.items() if not key.startswith("PYTEST_")}
    environment.pop(SECOND_TRY, None)
    environment |= {"PYTHONPATH": str(ROOT), "CI": "true", NAMES: str(tmp_path / "names")}

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n2",
            "--dist",
            "loadgroup",
            "-c",
            "strict.ini",
            "--rootdir",
            ".",
            *options,
        ]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_a_test_that_passes_alone_is_shown_as_flaky_with_its_failure(run) -> None:
    done = run(PASSES_THE_SECOND_TIME.format(count=2))
    assert done.returncode == 0, done.stdout
    assert "FLAKY test_it.py::test_flaky[0]" in done.stdout
    assert "only the first time" in done.stdout
    assert "2 flaky" in done.stdout.splitlines()[-1]


def test_more_than_two_flaky_tests_fail_a_run_and_runs_share_the_limit(run, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("of an earlier run\n")
    done = run(PASSES_THE_SECOND_TIME.format(count=2))
    assert done.returncode == 1
    assert "3 tests are flaky, 2 may be" in done.stdout


def test_a_test_that_is_skipped_the_second_time_has_failed(run) -> None:
    done = run(SKIPS_THE_SECOND_TIME)
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]


def test_a_test_that_fails_twice_fails_the_run(run) -> None:
    done = run(PASSES_THE_SECOND_TIME.format(count=1) + FAILS)
    assert done.returncode == 1
    assert "1 failed, 1 flaky" in done.stdout.splitlines()[-1]


def test_a_test_that_ends_its_process_fails_the_run_though_it_passes_alone(run) -> None:
    done = run(ENDS_ITS_PROCESS)
    assert done.returncode == 1, done.stdout
    assert "crashed while running 'test_it.py::test_ends'" in done.stdout


def test_a_name_may_be_listed_as_flaky_for_a_week() -> None:
    listed = {"old": date(2026, 1, 1), "new": date(2026, 1, 2)}
    assert expired_names(listed, date(2026, 1, 9)) == ["old"]


def test_the_list_names_files_that_exist_and_days_that_have_come() -> None:

    listed = tomllib.loads((ROOT / "tests" / "flaky.toml").read_text())
    today = datetime.now(UTC).date()
    assert [name for name, since in listed.items() if since > today] == []
    assert [name for name in listed if not (ROOT / name.partition("::")[0]).exists()] == []


@pytest.mark.parametrize("nodeid", ["a.py::test[x@y]@group", "a.py::test[x@y]"])
def test_the_group_of_a_test_is_no_part_of_its_name(nodeid: str) -> None:
    assert name_of(nodeid) == "a.py::test[x@y]"
