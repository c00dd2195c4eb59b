"""``sqlite:///queue.db?synchronous=full&busy_timeout=10``."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from shardq.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.store import Store

__all__ = ["open_sqlite"]


def open_sqlite(url: str, clock: Clock) -> Store:
    """The store in the file that the URL names; raises InvalidSetting for a URL that names none."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path:
        raise InvalidSetting(
            f"{url.partition('?')[0]!r} names no file: write sqlite:///queue.db, or sqlite:////var/lib/queue.db for an "
            "absolute path"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "full")
    busy_timeout = _seconds(options.pop("busy_timeout", "10"))
    if options:
        raise InvalidSetting(
            f"option {next(iter(options))!r} of the SQLite URL is unknown: use synchronous=full|normal, "
            "busy_timeout=SECONDS, signals=URL"
        )
    return SqliteStore(path, clock=clock, synchronous=cast("Any", synchronous), busy_timeout=busy_timeout)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSetting(f"busy_timeout={text!r} is no number: give seconds") from None
