"""Connections to the tables of the queues, which have a prefix in the database of an application.

Statements name tables and indexes in brackets, as in ``FROM [slice]``, and have no other brackets. In a file of queues
they are used as they are. Beside the tables of an application the prefix is put behind each bracket.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from shardq.base.texts import shown
from shardq.errors import InvalidSetting

__all__ = [
    "MOST_BLOBS",
    "ApplicationConnection",
    "BlobConnection",
    "PrefixedConnection",
    "check_prefix",
    "include_name",
    "prefix_of",
]

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
DEFAULT = "shardq_"

MOST_BLOBS = 1_000
"""After as many handles on blobs a pooled connection is closed, and another one opened when it is needed.

Python's module keeps a weak reference, about 80 bytes, to every handle for as long as the connection is open.
"""


class BlobConnection(sqlite3.Connection):
    """A connection that counts the handles on blobs that were opened on it."""

    blobs = 0

    def blobopen(self, *args: Any, **options: Any) -> sqlite3.Blob:
        """Open a handle."""
        self.blobs += 1
        return super().blobopen(*args, **options)


class _Statements(dict[str, str]):
    """Statements as they are in the code, with the prefix in each."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._bracket = f"[{prefix}"

    def __missing__(self, statement: str) -> str:
        found = self[statement] = statement.replace("[", self._bracket)
        return found


@cache
def _statements(prefix: str) -> _Statements:
    return _Statements(prefix)


class PrefixedConnection(BlobConnection):
    """A connection of a store to the database of an application."""

    prefix = ""
    _named: _Statements

    def use(self, prefix: str) -> None:
        """Find the tables by this prefix from now on."""
        self.prefix, self._named = prefix, _statements(prefix)

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        """Run a statement on the tables with the prefix."""
        return super().execute(self._named[statement], values)

    def executemany(self, statement: str, values: Iterable[Any], /) -> sqlite3.Cursor:
        """Run a statement for each of the values."""
        return super().executemany(self._named[statement], values)

    def blobopen(self, table: str, *args: Any, **options: Any) -> sqlite3.Blob:
        """Open a handle."""
        return super().blobopen(f"{self.prefix}{table}", *args, **options)


class ApplicationConnection:
    """The application's own connection, as far as a transaction uses it."""

    def __init__(self, sql: sqlite3.Connection, prefix: str) -> None:
        self.prefix, self._sql, self._named = prefix, sql, _statements(prefix)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement on the tables with the prefix."""
        return self._sql.execute(self._named[statement], values)

    def executemany(self, statement: str, values: Iterable[Any]) -> sqlite3.Cursor:
        """Run a statement for each of the values."""
        return self._sql.executemany(self._named[statement], values)


def prefix_of(sql: object) -> str:
    """Return the prefix of the tables on this connection; empty in a file of queues."""
    return str(getattr(sql, "prefix", ""))


def check_prefix(prefix: str) -> str:
    """Return the prefix. Raises InvalidSetting."""
    if not _PREFIX.fullmatch(prefix) or prefix.lower().startswith("sqlite_"):
        raise InvalidSetting(
            f"tables={shown(prefix)} of the SQLite URL: give what the names of the tables begin with, such as "
            f"tables={DEFAULT}: a letter, and up to 31 letters, digits and '_'"
        )
    return prefix


def include_name(name: str | None, kind: str, _parents: object = None, *, prefix: str = DEFAULT) -> bool:
    """Return False for the tables of the queues: the ``include_name`` of Alembic, which would drop them otherwise.

    For another prefix: ``functools.partial(include_name, prefix="queues_")``.

    >>> include_name("users", "table", {}), include_name("shardq_slice", "table", {})
    (True, False)
    """
    return kind != "table" or name is None or not name.startswith(prefix)
