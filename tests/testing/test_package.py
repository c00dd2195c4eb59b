from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import shardq.testing
import shardq.testing.conformance
from shardq.storage.store import Store
from shardq.testing.conformance import StoreConformance


def test_the_light_part_needs_neither_pytest_nor_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # what measures coverage needs sqlite3
    check = (
        "import sys, shardq.testing; sys.exit(bool({'pytest', 'hypothesis', 'sqlite3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_every_public_name_exists() -> None:
    for package in (shardq.testing, shardq.testing.conformance):
        assert sorted(package.__all__) == list(package.__all__)
        assert all(hasattr(package, name) for name in package.__all__)


def test_every_module_says_what_it_exports() -> None:
    for package in (shardq.testing, shardq.testing.conformance):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            assert importlib.import_module(module.name).__all__


def test_no_contract_has_a_fixture_that_the_tests_of_others_use_unasked() -> None:
    """One that skips would skip the whole suite: it is one class."""
    folder = Path(*shardq.testing.conformance.__path__)
    assert [file.name for file in folder.glob("*.py") if "autouse" in file.read_text()] == []


def test_every_contract_is_in_the_suite() -> None:
    contracts = {name for name in shardq.testing.conformance.__all__ if name.endswith("Contract")} - {
        "Contract"
    }
    assert {base.__name__ for base in StoreConformance.__bases__} == contracts


def test_no_test_hides_one_of_the_same_name() -> None:
    names = Counter(
        name for base in StoreConformance.__bases__ for name in vars(base) if not name.startswith("__")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_wrapped_store_has_every_method_of_the_port() -> None:
    port = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
    assert port <= set(vars(shardq.testing.WrappedStore))
