"""How much of the model is looked at, and a line on each part of it in the test report."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

EXPLORED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def most_states() -> int:
    """States of each scenario that are visited in every order; `make model` looks at more of them."""
    return int(os.environ.get("SHARDQ_MODEL_STATES", "1200"))


@pytest.fixture
def note(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[str, str], None]:
    """Keeps a line for the report, under the name of the part of the model that it is about."""

    def keep(name: str, text: str) -> None:
        record_property("explored", text)
        request.config.stash.setdefault(EXPLORED, []).append(f"{name}: {text}")

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(EXPLORED, [])
    if lines:
        terminalreporter.section("the model of the claim protocol")
        for line in lines:
            terminalreporter.write_line(line)
