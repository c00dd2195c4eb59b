"""The floor plan of the stores, as docs/storage-port.md tells it: the same role has the same file name in each."""

from __future__ import annotations

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
