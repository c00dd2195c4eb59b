"""Every append goes through one function, and everything that settles through another: read off the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import shardq

FOLDER = Path(shardq.__file__).parent
BELOW_THE_PORT = {"storage", "testing"}


def calls_of_the_store(method: str) -> list[str]:
    """The modules above the port that name a method of a store, each time that they do."""
    found = []
    for path in sorted(FOLDER.rglob("*.py")):
        place = path.relative_to(FOLDER)
        if place.parts[0] not in BELOW_THE_PORT:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [str(place) for node in ast.walk(tree) if _is_method_of_a_store(node, method)]
    return found


def _is_method_of_a_store(node: ast.AST, method: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != method:
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") == "store"


@pytest.mark.parametrize(
    ("method", "place"),
    [
        ("append", "sending/doors.py"),
        ("acknowledge", "settling/settle.py"),
        ("release", "settling/settle.py"),
        ("extend", "settling/settle.py"),
        ("forward", "settling/settle.py"),
    ],
)
def test_each_way_to_change_messages_is_asked_of_a_store_in_one_place(method: str, place: str) -> None:
    assert calls_of_the_store(method) == [place]


def test_the_reader_of_the_source_finds_what_it_looks_for() -> None:
    tree = ast.parse("context.store.append(request); self._store.append(request); waiting.append(request)")
    assert sum(_is_method_of_a_store(node, "append") for node in ast.walk(tree)) == 2
