"""Decide whether a run of tests passes: flaky tests, and the minutes that it may take.

A failed test runs once more, alone, when all others have ended. One that passes then is flaky: its failure is printed,
and the run passes. In CI it fails nevertheless when too many tests are flaky, or when one has been in
``tests/flaky.toml`` for too long, which has the day on which each was seen first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

LISTED = Path(__file__).with_name("flaky.toml")
MOST_TRIED = 5
"""More failures than this are no accident: none of them is tried again."""
CRASHED = "???"
"""When a test failed that has ended the process which ran it, as pytest-xdist tells it."""
MOST_FLAKY = 2
LONGEST_LISTED = timedelta(days=7)
NAMES = "SHARDQ_FLAKY_NAMES"
"""The file in which runs note their flaky tests, so that several runs share one limit."""
SECOND_TRY = "SHARDQ_SECOND_TRY"
SECONDS = 600
BUDGETS = Path(__file__).parents[1] / "budgets.toml"
SLOW_MACHINE = 3.0
"""A run fails CI above this multiple of its minutes: the same tests took 1.6 times longer on some days."""

_began = pytest.StashKey[float]()
_complaints = pytest.StashKey[list[str]]()


def add_options(parser: pytest.Parser) -> None:
    """Add the option that compares the time of the run with a budget."""
    parser.addoption(
        "--budget", metavar="NAME", help=f"the budget in minutes of {BUDGETS.name} that the run has"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note when the run begins."""
    session.config.stash[_began] = time.monotonic()


@pytest.hookimpl(wrapper=True, trylast=True)  # when xdist has ended its processes
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Try failed tests again when the processes that ran them have ended, before the summary is printed."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput") or SECOND_TRY in os.environ:
        return
    failed = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    expired = expired_names(tomllib.loads(LISTED.read_text()), datetime.now(UTC).date())
    session.config.stash[_complaints] = complaints = [
        f"{name} has been in {LISTED.name} for more than {LONGEST_LISTED.days} days: fix it"
        for name in expired
    ]
    tried = dict.fromkeys(name_of(report.nodeid) for report in failed)
    is_whole = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not session.shouldfail
    has_crashed = any(report.when == CRASHED for report in failed)  # others may not have run
    if is_whole and not has_crashed and len(tried) <= MOST_TRIED:
        passed = {name for name in tried if _passes_alone(session.config, name)}
        flaky = [report for report in failed if name_of(report.nodeid) in passed]
        for report in flaky:
            reporter.stats["failed" if report in reporter.stats.get("failed", ()) else "error"].remove(report)
        if flaky:
            reporter.stats["flaky"] = flaky
        known = _noted(sorted(passed))
        if len(known) > MOST_FLAKY:
            complaints.append(f"{len(known)} tests are flaky, {MOST_FLAKY} may be: {', '.join(known)}")
        if len(flaky) == session.testsfailed:  # which counts a coverage below its floor, too
            session.exitstatus = pytest.ExitCode.OK
    complaints += _too_slow(session.config)
    if complaints and os.environ.get("CI"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the failure of each flaky test, the minutes, and what fails the run beside failed tests."""
    if config.option.budget is not None:
        terminalreporter.write_line(f"{_minutes(config):.1f} of {_budget(config)} minutes")
    for report in terminalreporter.stats.get("flaky", ()):
        terminalreporter.write_sep("_", f"FLAKY {name_of(report.nodeid)}", yellow=True)
        terminalreporter.write_line(str(report.longrepr))
        terminalreporter.write_line(
            f"It passed alone. Fix it, or list it in tests/{LISTED.name} with today's date."
        )
    for complaint in config.stash.get(_complaints, []):
        terminalreporter.write_line(complaint, red=True)


def _minutes(config: pytest.Config) -> float:
    return (time.monotonic() - config.stash[_began]) / 60


def _budget(config: pytest.Config) -> int:
    return int(tomllib.loads(BUDGETS.read_text())["minutes"][config.option.budget])


def _too_slow(config: pytest.Config) -> list[str]:
    if config.option.budget is None or _minutes(config) <= SLOW_MACHINE * _budget(config):
        return []
    return [
        f"{_minutes(config):.1f} minutes are more than {SLOW_MACHINE:g} times the budget, {_budget(config)}"
    ]


def expired_names(listed: dict[str, date], today: date) -> list[str]:
    """Return the names that have been on the list of flaky tests for too long."""
    return [name for name, since in listed.items() if today - since > LONGEST_LISTED]


def name_of(nodeid: str) -> str:
    """Return the name of a test without the group that pytest-xdist puts behind it."""
    return re.sub(r"@[^@\]]*$", "", nodeid)


def _passes_alone(config: pytest.Config, name: str) -> bool:
    """Return whether the test passes in a process of its own; a test that is skipped then does not."""
    options = ["-q", "-p", "no:cacheprovider", "-c", str(config.inipath or os.devnull)]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(config.rootpath), name]
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COVERAGE_"))
    }
    try:
        tried = subprocess.run(
            command,
            cwd=config.rootpath,
            env=inherited | {SECOND_TRY: "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    summary = tried.stdout.strip().rpartition("\n")[2]
    return tried.returncode == 0 and " passed" in summary and "skipped" not in summary


def _noted(names: list[str]) -> list[str]:
    """Add names to those that other runs have noted, and return all of them."""
    if NAMES not in os.environ:
        return names
    file = Path(os.environ[NAMES])
    with file.open("a") as opened:
        opened.writelines(f"{name}\n" for name in names)
    return file.read_text().splitlines()
