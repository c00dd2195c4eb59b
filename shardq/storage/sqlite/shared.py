"""Queues in the SQLite database of an application, next to its tables."""

from __future__ import annotations

from typing import Literal

import msgspec

from shardq.base.clock import Clock
from shardq.errors import UnsupportedByStore
from shardq.storage.abilities import SavedFile
from shardq.storage.sqlite.store import SqliteStore

__all__ = ["SharedStore"]

_TOOLS = "the backup of the application's database, such as `sqlite3 app.db '.backup copy.db'`"


class SharedStore(SqliteStore):
    """An SQLite store whose tables have a prefix, in a database that is the application's.

    The journal, the pages, ``user_version`` and ``application_id`` stay as the application has them. It is saved and
    restored with the application's own data. A restore brings back what was acked since the backup.
    """

    capabilities = msgspec.structs.replace(SqliteStore.capabilities, backup_tools=_TOOLS)

    def __init__(
        self,
        path: str,
        *,
        tables: str,
        clock: Clock | None = None,
        synchronous: Literal["full", "normal"] = "full",
        busy_timeout: float = 10.0,
    ) -> None:
        super().__init__(path, clock=clock, synchronous=synchronous, busy_timeout=busy_timeout, tables=tables)

    def back_up(self, target: str, *, overwrite: bool = False) -> SavedFile:  # noqa: ARG002
        """Refuse it: what is saved of the application's data is for the application to say."""
        raise _refused(target)

    def restore(self, backup: str) -> SavedFile:
        """Refuse it: it would take the place of the application's data."""
        raise _refused(backup)


def _refused(path: str) -> UnsupportedByStore:
    return UnsupportedByStore(f"{path!r}: the queues are in the database of an application: use {_TOOLS}")
