"""Dedupe keys: which message a key stands for, for a time. Unique keys are in the same table, and for ever."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.storage.keys import KeyChange, KeyEntry
from shardq.storage.postgresql import queues
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.session import Session
from shardq.storage.requests import DedupeEntry

__all__ = ["KeyMethods", "expire"]

_RESERVE = """
    INSERT INTO @key AS k (queue_key, kind, key, value, confirmed, expires_at)
    SELECT $1, 0, a.key, a.value, false, $4 FROM unnest($2::bytea[], $3::bytea[]) AS a (key, value) ORDER BY a.key
    ON CONFLICT (queue_key, kind, key) DO UPDATE
    SET value = excluded.value, confirmed = false, expires_at = excluded.expires_at WHERE k.expires_at <= $5
"""
# The server is kept from seeing that all are of one kind. It would read all of that kind where it takes them for few,
# as it does when they were few at the last vacuum.
_KEYS = "(SELECT {} AS queue_key, {}::smallint AS kind, u.* FROM {} OFFSET 0) AS a"
_NAMED = "k.queue_key = a.queue_key AND k.kind = a.kind AND k.key = a.key"
_CURRENT = f"""
    SELECT k.key, k.value, k.confirmed FROM {_KEYS.format("$1::bigint", 0, "unnest($2::bytea[]) AS u (key)")}
    JOIN @key k ON {_NAMED}
"""
_OF_QUEUE = "@queue q CROSS JOIN unnest({}) AS u ({}) WHERE q.name = $1"
_CONFIRM = f"""
    UPDATE @key k SET confirmed = true
    FROM {_KEYS.format("q.queue_key", 0, _OF_QUEUE.format("$2::bytea[], $3::bytea[]", "key, value"))}
    WHERE {_NAMED} AND k.value = a.value AND NOT k.confirmed
"""
_EXPIRE = f"""
    DELETE FROM @key k USING (
        SELECT e.queue_key, e.kind, e.key FROM @queue q JOIN @key e ON e.queue_key = q.queue_key
        WHERE q.name = $1 AND e.kind = 0 AND e.expires_at <= $2 ORDER BY e.expires_at LIMIT 1000
    ) AS a
    WHERE {_NAMED} AND k.expires_at <= $2
"""

_UNIQUE = f"""
    SELECT k.key, k.value FROM {_KEYS.format("q.queue_key", 1, _OF_QUEUE.format("$2::bytea[]", "key"))}
    JOIN @key k ON {_NAMED}
"""
_ENTER = """
    INSERT INTO @key (queue_key, kind, key, value, confirmed, expires_at) VALUES ($1, 1, $2, $3, true, $4)
    ON CONFLICT DO NOTHING
"""
_SET = "UPDATE @key SET value = $4 WHERE queue_key = $1 AND kind = 1 AND key = $2 AND value = $3"
_TAKE_OUT = "DELETE FROM @key WHERE queue_key = $1 AND kind = 1 AND key = $2 AND value = $3"
_LIST = """
    SELECT k.key, k.value FROM @queue q JOIN @key k ON k.queue_key = q.queue_key
    WHERE q.name = $1 AND k.kind = 1 AND k.key > $2 ORDER BY k.key LIMIT $3
"""
_NEVER = 2**62


class KeyMethods:
    """The methods of the store that are about keys."""

    session: Session

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free; raises QueueNotFound. The append that follows makes it durable."""
        return self.session.write(_reserve, queue, entries, window, durable=False)

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        self.session.write(_confirm, queue, entries, durable=False)

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        """Read the keys; change them in one transaction where some are as the caller saw them."""
        current = self.session.read(_values, queue, changes)
        if all(
            found != change.before or found == change.after
            for found, change in zip(current, changes, strict=True)
        ):
            return current
        durable = any(None not in (change.before, change.after) for change in changes)
        return self.session.write(_change, queue, changes, durable=durable)

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        """Return the next entries, by key."""
        return self.session.read(_list, queue, after, limit)


def _reserve(
    sql: Sql, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve what is free; returns what now stands for each key. Raises QueueNotFound."""
    queue_key = queues.pinned(sql, queue)
    if not entries:
        return ()
    values: dict[bytes, bytes] = {}
    for entry in entries:  # the first of a key that is given twice
        values.setdefault(_bytes(entry.key), _bytes(entry.message_id))
    keys = list(values)
    while True:
        sql.run(_RESERVE, queue_key, keys, list(values.values()), now + window, now)
        current = {key: (value, confirmed) for key, value, confirmed in sql.all(_CURRENT, queue_key, keys)}
        if len(current) == len(keys):  # none was swept meanwhile
            break
    return tuple(_entry(entry.key, *current[_bytes(entry.key)]) for entry in entries)


def _entry(key: str, value: bytes, confirmed: bool) -> DedupeEntry:
    return DedupeEntry(key, _text(value), confirmed)


def _confirm(sql: Sql, queue: str, entries: Sequence[DedupeEntry], _now: int) -> None:
    """Mark the messages of the entries as stored."""
    given = sorted({(_bytes(entry.key), _bytes(entry.message_id)) for entry in entries})
    if given:
        keys, values = zip(*given, strict=True)
        sql.run(_CONFIRM, queue, list(keys), list(values))


def expire(sql: Sql, queue: str, now: int) -> int:
    """Remove up to a thousand keys whose window has ended; returns how many."""
    return sql.run(_EXPIRE, queue, now)


def _values(sql: Sql, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
    """Return the values under the unique keys."""
    if not changes:
        return ()
    found: dict[bytes, bytes] = dict(sql.all(_UNIQUE, queue, [_bytes(change.key) for change in changes]))
    values = (found.get(_bytes(change.key)) for change in changes)
    return tuple(None if value is None else _text(value) for value in values)


def _change(sql: Sql, queue: str, changes: Sequence[KeyChange], _now: int) -> tuple[str | None, ...]:
    """Make the changes whose ``before`` stands; returns what stands then. Raises QueueNotFound."""
    if any(change.before is None for change in changes):
        queue_key: int | None = queues.pinned(sql, queue)
    else:
        queue_key = queues.key_of(sql, queue)
    for change in sorted(changes, key=lambda each: each.key):
        key = _bytes(change.key)
        if change.before is None and change.after is not None:
            sql.run(_ENTER, queue_key, key, _bytes(change.after), _NEVER)
        elif change.after is None:
            sql.run(_TAKE_OUT, queue_key, key, _bytes(change.before or ""))
        else:
            sql.run(_SET, queue_key, key, _bytes(change.before or ""), _bytes(change.after))
    return _values(sql, queue, changes)


def _list(sql: Sql, queue: str, after: str, limit: int) -> tuple[KeyEntry, ...]:
    """Return the next entries after a key."""
    rows = sql.all(_LIST, queue, _bytes(after), limit)
    return tuple(KeyEntry(_text(key), _text(value)) for key, value in rows)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")
