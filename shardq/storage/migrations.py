"""The numbered files of ``schema/<store>/``: the only place where a store's tables are defined."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["Migration", "migrations"]

_FILE = re.compile(r"(?P<number>\d{4})_(?P<name>[a-z0-9_]+)\.[a-z]+")


class Migration(msgspec.Struct, frozen=True, order=True):
    """One file: its number from 1, the name after the number, and its statements."""

    number: int
    name: str
    text: str


@cache
def migrations(store: str) -> tuple[Migration, ...]:
    """Return every migration of the store, in the order in which they are applied.

    They are read from the installed package, maybe in a zip file, or from the checkout that an editable install points
    to.
    """
    found = sorted(_read(file) for file in _folder(store).iterdir() if _FILE.fullmatch(file.name))
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise FileNotFoundError(
            f"schema/{store} has a gap or a duplicate in its numbers: install shardq again"
        )
    return tuple(found)


def _folder(store: str) -> Traversable:
    package = Path(__file__).parents[1]
    for place in (package, package.parent):
        if (folder := place / "schema" / store).is_dir():
            return folder
    from importlib.resources import files  # noqa: PLC0415 - slow, and for a package in a zip file only

    return files("shardq") / "schema" / store


def _read(file: Traversable) -> Migration:
    match = _FILE.fullmatch(file.name)
    assert match is not None
    return Migration(int(match["number"]), match["name"], file.read_text(encoding="utf-8"))
