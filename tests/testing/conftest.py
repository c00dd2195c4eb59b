from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq.storage.store import Store
from shardq.testing import StoreHarness

CONFORMANCE = Path(__file__).parent.parent / "conformance"


@pytest.fixture(scope="session")
def sqlite_harness() -> type[StoreHarness]:
    """The harness that proves SQLite."""
    spec = importlib.util.spec_from_file_location("proof_of_sqlite", CONFORMANCE / "test_sqlite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.SqliteHarness


@pytest.fixture
def harness(sqlite_harness: Any, tmp_path: Path) -> StoreHarness:
    return sqlite_harness(tmp_path)


@pytest.fixture
def wrapped(
    sqlite_harness: type[StoreHarness], tmp_path: Path
) -> Callable[[Callable[[Store], Store]], StoreHarness]:
    """Make a harness whose clients are wrapped."""

    def make(wrap: Callable[[Store], Store]) -> StoreHarness:
        class Wrapped(sqlite_harness):  # type: ignore[valid-type,misc]
            def open(self) -> Store:
                return wrap(super().open())

        return Wrapped(tmp_path)

    return make
