"""The floor plan of the stores, as docs/storage-port.md tells it, and their words, as the glossary does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from shardq.storage import requests
from shardq.storage.store import Store

ROOT = Path(__file__).parents[2]
STORAGE = ROOT / "shardq" / "storage"
STORES = ("sqlite", "cassandra", "mongodb", "postgresql")


def _files(folder: Path) -> set[str]:
    """Return the names of its files and of the folders in it."""
    folders = {file.parent.name for file in folder.glob("*/__init__.py")}
    return {file.stem for file in folder.glob("*.py")} - {"__init__"} | folders


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


def test_nineteen_roles_have_the_same_file_name_in_every_store() -> None:
    common = set.intersection(*(_files(STORAGE / store) for store in STORES))
    assert len(common) >= 19, sorted(common)


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
    concerned = (
        "session.py",
        "guarantees.py",
        "url.py",
        "collections.py",
        "shard_rows.py",
        "transactions.py",
    )
    others |= {(file, word) for file in concerned for word in "wj"}
    assert not spelled - others


def _glossary() -> str:
    return (ROOT / "docs/concepts.md").read_text().partition("## Glossary")[2]


def _names_of_the_port() -> set[str]:
    methods = {name for name in vars(Store) if not name.startswith("_")}
    return {*requests.__all__, *methods} - {"capabilities", "close", "now", "create_schema"}


def test_the_glossary_has_every_word_of_the_storage_port() -> None:
    words = {word.lower() for word in re.findall(r"\w+", _glossary())}
    queues = {name for name in _names_of_the_port() if name.endswith(("_queue", "_queues"))}
    assert not {name for name in _names_of_the_port() - queues if name.lower() not in words}


WORDS = """read cursor, low watermark, due index, lease row, inline bundle, split, publisher, local notifier,
suspect node, shard directory, incarnation, deep probe, glance, hint, lock of a shard, tombstone"""
PRIVATE = "sight sights floor floors alarm alarms holding holdings carve carving herald switchboard suspects lookout"


@pytest.mark.parametrize("word", re.split(r",\s+", WORDS))
def test_the_glossary_has_the_words_of_the_stores(word: str) -> None:
    assert f"\n| {word}" in _glossary()


def test_no_private_word_is_left_in_the_names_of_the_stores() -> None:
    private = set(PRIVATE.split())
    names = {
        (file.name, node.id)
        for folder in ("storage", "testing")
        for file in (ROOT / "shardq" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Name) and private.intersection(re.findall(r"[a-z]+", _snake(node.id)))
    }
    assert not names


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
