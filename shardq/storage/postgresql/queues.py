"""The records of the queues. Each incarnation of a queue has a different key."""

from __future__ import annotations

from shardq.errors import QueueNotFound
from shardq.storage.postgresql import schema
from shardq.storage.postgresql.connections import Address, Sql
from shardq.storage.requests import QueueRecord

__all__ = ["create", "key_of", "listing", "load", "pinned", "update"]

_INSERT = (
    "INSERT INTO @queue (name, version, settings) VALUES ($1, $2::int, $3) ON CONFLICT (name) DO NOTHING"
)
_SELECT = "SELECT m.version, q.name, q.settings, q.version FROM @meta m LEFT JOIN @queue q ON q.name = $1"
_UPDATE = "UPDATE @queue SET settings = $1, version = $2::int WHERE name = $3 AND version = $4"
# "~" sorts after every character that a name may have.
_LIST = "SELECT name FROM @queue WHERE name >= $1::text AND name < $1::text || '~' ORDER BY name"
_KEY = "SELECT queue_key FROM @queue WHERE name = $1"
_PIN = f"{_KEY} FOR KEY SHARE"


def create(sql: Sql, record: QueueRecord, _now: int) -> bool:
    """Store the record; False when the name is taken."""
    return sql.run(_INSERT, record.name, record.version, record.settings) == 1


def load(sql: Sql, name: str, address: Address) -> QueueRecord | None:
    """Return the record, or None. Raises SchemaMismatch when the schema is another version's."""
    row = sql.one(_SELECT, name)
    found, *record = row or (0, None)
    schema.check_version(found, address)
    return None if record[0] is None else QueueRecord(*record)


def update(sql: Sql, record: QueueRecord, _now: int) -> bool:
    """Replace the record of the version before; False when there is none."""
    return sql.run(_UPDATE, record.settings, record.version, record.name, record.version - 1) == 1


def listing(sql: Sql, prefix: str) -> tuple[str, ...]:
    """Return the names that start with the prefix, sorted."""
    return tuple(name for (name,) in sql.all(_LIST, prefix))


def key_of(sql: Sql, name: str, *, pins: bool = False) -> int | None:
    """Return the key of the queue, or None when there is no such queue.

    With ``pins`` it is not dropped before the transaction ends.
    """
    row = sql.one(_PIN if pins else _KEY, name)
    return int(row[0]) if row else None


def pinned(sql: Sql, name: str) -> int:
    """Return the key of the queue, which is not dropped before the transaction ends. Raises QueueNotFound."""
    if (key := key_of(sql, name, pins=True)) is None:
        raise QueueNotFound(f"queue {name!r} does not exist: create it first")
    return key
