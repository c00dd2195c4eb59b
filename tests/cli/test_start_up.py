"""A command starts with what it needs: how long that takes depends on the machine, what is loaded does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardq.cli.command_table import COMMANDS

LOADED = """
import json, sys
import click
of_click = set(sys.modules)
from shardq.cli.main import main
try:
    main({arguments})
except SystemExit as ended:
    code = ended.code
print(json.dumps([code, sorted(set(sys.modules) - of_click)]))
"""

FIRST_USE = """
import sys, shardq
assert not [name for name in sys.modules if name.startswith("shardq.")]
shardq.connect
from shardq import *
assert Queue is shardq.Queue and "connect" in dir(shardq)
assert not hasattr(shardq, "conect")
"""

SLOW = {
    "asyncio",
    "bson",
    "cassandra",
    "concurrent",
    "ctypes",
    "difflib",
    "email",
    "hashlib",
    "hypothesis",
    "importlib.metadata",
    "importlib.resources",
    "inotify_simple",
    "json",
    "logging",
    "matplotlib",
    "multiprocessing",
    "pandas",
    "pymongo",
    "pyspark",
    "pytest",
    "redis",
    "rich",
    "secrets",
    "socket",
    "tenacity",
    "zipfile",
}
PARTS = {
    "shardq.api",
    "shardq.client",
    "shardq.planning",
    "shardq.core.receiving",
    "shardq.core.sending",
    "shardq.core.settling",
    "shardq.spark",
    "shardq.testing",
    "shardq.worker",
    "shardq.storage.cassandra",
    "shardq.storage.mongodb",
    "shardq.storage.redis",
    "shardq.storage.signals",
}


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose coverage is measured loads what measures it."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


def loaded(*arguments: str) -> set[str]:
    """What a run of the command line loads beside click and what click needs."""
    code = LOADED.format(arguments=json.dumps(arguments))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, modules = json.loads(ended.stdout.splitlines()[-1])
    assert status == 0, ended.stderr
    return set(modules)


def within(modules: set[str], parts: set[str]) -> set[str]:
    """Those of the modules that are one of the parts, or in one."""
    return {name for name in modules if any(f"{name}.".startswith(f"{part}.") for part in parts)}


def test_the_help_loads_no_command_no_store_and_nothing_slow() -> None:
    modules = loaded("--help")
    others = {
        "msgspec",
        "sqlite3",
        "shardq.cli.commands",
        "shardq.errors",
        "shardq.core.settings",
        "shardq.storage",
    }
    assert within(modules, SLOW | PARTS | others) == set()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=" ".join)
def test_a_list_loads_its_store_alone_and_nothing_slow(shell, options: list[str]) -> None:
    shell.ok("create", "jobs")
    modules = loaded("--url", shell.url, "list", *options)
    assert within(modules, SLOW | PARTS) == set()
    assert "shardq.storage.sqlite.store" in modules


def test_the_package_loads_its_parts_when_a_name_is_used_first() -> None:
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True)


def test_every_command_is_where_the_table_says_and_in_its_file_alone() -> None:
    folder = Path(sys.modules["shardq.cli.command_table"].__file__ or "").parent / "commands"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    named = {
        entry.target.partition(":")[0].rpartition(".")[2]
        for entry in COMMANDS.values()
        if ".commands." in entry.target
    }
    assert files == named


def test_the_package_can_be_run_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "shardq", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("shardq")
