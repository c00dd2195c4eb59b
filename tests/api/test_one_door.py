"""Every append goes through one function, and everything that settles through another: read off the source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import shardq

pytestmark = pytest.mark.xdist_group("test_one_door")  # each would parse the whole source

FOLDER = Path(shardq.__file__).parent
BELOW_THE_PORT = {"storage", "testing"}


def calls_of_the_store(method: str) -> list[str]:
    """The modules above the port that name a method of a store, each time that they do."""
    return [place for place, node in _attributes() if _is_method_of_a_store(node, method)]


@cache
def _attributes() -> list[tuple[str, ast.Attribute]]:
    """What the modules above the port name of something else, with the module."""
    return [
        (str(path.relative_to(FOLDER)), node)
        for path in sorted(FOLDER.rglob("*.py"))
        if path.relative_to(FOLDER).parts[0] not in BELOW_THE_PORT
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    ]


def _is_method_of_a_store(node: ast.AST, method: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != method:
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") in ("store", "settle_commit")


@pytest.mark.parametrize(
    ("method", "place"),
    [
        ("append", "core/sending/appending.py"),
        ("acknowledge", "core/context/settle_group_commit.py"),
        ("release", "core/context/settle_group_commit.py"),
        ("extend", "core/context/settle_group_commit.py"),
        ("forward", "core/context/settle_group_commit.py"),
        ("settle", "core/settling/settle.py"),
    ],
)
def test_each_way_to_change_messages_is_asked_of_a_store_in_one_place(method: str, place: str) -> None:
    assert calls_of_the_store(method) == [place]


def test_the_reader_of_the_source_finds_what_it_looks_for() -> None:
    tree = ast.parse("context.store.append(request); self._store.append(request); waiting.append(request)")
    assert sum(_is_method_of_a_store(node, "append") for node in ast.walk(tree)) == 2
