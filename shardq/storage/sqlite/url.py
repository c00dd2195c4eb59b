"""``sqlite:///queue.db?synchronous=full&busy_timeout=10``.

The path ends at the first ``?``. In it ``%XX`` is a byte of the file's name, so ``?`` is written as ``%3F``, and ``%``
as ``%25`` before two hexadecimal digits. Every other character stands for itself, also ``#`` and spaces.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

import msgspec

from shardq.base.clock import Clock
from shardq.errors import InvalidSetting, UnsupportedByStore
from shardq.storage.abilities import SavedFile
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.sqlite.tables import check_prefix
from shardq.storage.store import Store

__all__ = ["SharedStore", "open_sqlite", "path_in"]

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


def open_sqlite(url: str, clock: Clock) -> Store:
    """Open the store in the file that the URL names; raises InvalidSetting for a URL that names none."""
    path, (_, mark, query) = path_in(url), url.partition("?")
    if not path or "\0" in path:
        raise InvalidSetting(
            "the SQLite URL names no file, or a host: write sqlite:///queue.db, or sqlite:////var/lib/queue.db for an "
            "absolute path"
        )
    if mark and not query:
        raise InvalidSetting(
            f"{url!r} ends with '?', and no options follow: leave it out, or write %3F for a '?' of the path"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "full")
    busy_timeout = _seconds(options.pop("busy_timeout", "10"))
    tables = options.pop("tables", None)
    if options:
        raise InvalidSetting(
            f"option {next(iter(options))!r} of the SQLite URL is unknown: use synchronous=full|normal, "
            "busy_timeout=SECONDS, tables=PREFIX, signals=URL; write %3F for a '?' of the path"
        )
    common: Any = {"clock": clock, "synchronous": synchronous, "busy_timeout": busy_timeout}
    return (
        SqliteStore(path, **common)
        if tables is None
        else SharedStore(path, tables=check_prefix(tables), **common)
    )


def path_in(url: str) -> str:
    """Return the path of the file that a URL names; empty when it names none, or a host."""
    rest = url.partition("://")[2].partition("?")[0]
    return unquote(rest[1:], errors="surrogateescape") if rest.startswith("/") else ""


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSetting(f"busy_timeout={text!r} is no number: give seconds") from None
