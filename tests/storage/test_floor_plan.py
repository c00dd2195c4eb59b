"""The floor plan of the stores, as docs/storage-port.md tells it: the same role has the same file name in each."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORAGE = ROOT / "shardq" / "storage"
STORES = ("sqlite", "cassandra", "mongodb")


def _files(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.py")} - {"__init__"}


def _plan() -> dict[str, set[str]]:
    """Return the files that the table names for each store."""
    table = (ROOT / "docs/storage-port.md").read_text().partition("| role |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    assert all(len(row) == 1 + len(STORES) for row in rows)
    return {
        store: {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}
        for column, store in enumerate(STORES, 1)
    }


@pytest.mark.parametrize("store", STORES)
def test_the_floor_plan_names_every_file_of_a_store_and_no_other(store: str) -> None:
    assert _plan()[store] == _files(STORAGE / store)


def test_twenty_roles_have_the_same_file_name_in_every_store() -> None:
    common = set.intersection(*(_files(STORAGE / store) for store in STORES))
    assert len(common) >= 20, sorted(common)


def test_no_file_of_the_stores_is_longer_than_300_lines() -> None:
    lines = {file: len(file.read_text().splitlines()) for file in STORAGE.rglob("*.py")}
    assert not {str(file): number for file, number in lines.items() if number > 300}


def test_the_files_of_the_stores_are_few_enough_to_know() -> None:
    assert len(list(STORAGE.rglob("*.py"))) <= 100


def test_fields_of_one_letter_have_their_names_in_one_file_of_the_mongodb_store() -> None:
    """But for the server's own words in commands, answers and the write concern, and an end of hexadecimal names."""
    spelled = {
        (file.name, node.value)
        for file in (STORAGE / "mongodb").glob("*.py")
        if file.name != "documents.py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\$?[a-z](\.\w+)?", node.value)
    }
    others = {("shard_rows.py", word) for word in "qun"} | {("queues.py", "g")}
    others |= {(file, word) for file in ("session.py", "guarantees.py", "url.py") for word in "wj"}
    assert not spelled - others
