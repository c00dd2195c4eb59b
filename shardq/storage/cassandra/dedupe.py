"""Dedupe keys: which message a key stands for, for a time. Their rows expire automatically after that.

Unique keys are stored in the same table, and do not expire. A queue is named by what it is called in the tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise

from shardq.errors import StoreUnavailable
from shardq.storage.cassandra.faults import TombstonesRefused
from shardq.storage.cassandra.queues import Incarnations
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.keys import UNIQUE_END, UNIQUE_PREFIX, KeyChange, KeyEntry
from shardq.storage.requests import DedupeEntry

__all__ = ["KeyMethods", "drop"]

_RESERVE = (
    "INSERT INTO dedupe (queue, bucket, key, message_id, expires_at) VALUES (?, ?, ?, ?, ?) "
    "IF NOT EXISTS USING TTL ?"
)
_TAKE_OVER = (
    "UPDATE dedupe USING TTL ? SET message_id = ?, expires_at = ?, confirmed = null "
    "WHERE queue = ? AND bucket = ? AND key = ? IF expires_at = ? AND message_id = ?"
)
_CURRENT = (
    "SELECT key, message_id, expires_at, confirmed FROM dedupe WHERE queue = ? AND bucket = ? AND key IN ?"
)
_CONFIRM = (
    "UPDATE dedupe USING TTL ? SET confirmed = true "
    "WHERE queue = ? AND bucket = ? AND key = ? IF message_id = ? AND expires_at = ?"
)
_UNIQUE = "SELECT key, message_id FROM dedupe WHERE queue = ? AND bucket = ? AND key IN ?"
_ENTER = (
    "INSERT INTO dedupe (queue, bucket, key, message_id, expires_at) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
)
_SET = "UPDATE dedupe SET message_id = ? WHERE queue = ? AND bucket = ? AND key = ? IF message_id = ?"
_TAKE_OUT = "DELETE FROM dedupe WHERE queue = ? AND bucket = ? AND key = ? IF message_id = ?"
_LIST = "SELECT key, message_id FROM dedupe WHERE queue = ? AND bucket = ? AND key >= ? AND key < ? LIMIT ?"
_DROP = "DELETE FROM dedupe USING TIMESTAMP ? WHERE queue = ? AND bucket = ?"

_BUCKETS = 16
_AT_ONCE = 100
_GRACE = 60  # seconds that a row outlives its window,
_CONFIRMED_GRACE = 30  # and that its confirmation does: one without a row would block the next
_LONGEST_TTL = 20 * 365 * 24 * 3600
_ATTEMPTS = 25
_NEVER = 2**62
_LETTERS = [chr(code) for code in (*range(0x20, 0x7F), 0xA0, 0x400, 0x3000, 0x10000)]  # to cut ranges at

_Row = tuple[str, int, bool]


class KeyMethods(ABC):
    """The methods of the store that are about keys."""

    session: Session
    incarnations: Incarnations

    @abstractmethod
    def now(self) -> int:
        """Return the cluster's time."""

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free; raises QueueNotFound."""
        name = self.incarnations.require(self.session, queue)
        return _reserve(self.session, name, entries, window, self.now())

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        _confirm(self.session, self.incarnations.of(self.session, queue), entries, self.now())

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        """Change the keys that stand as the caller saw them; raises QueueNotFound where one may be new."""
        enters = any(change.before is None for change in changes)
        named = self.incarnations.require if enters else self.incarnations.of
        return _exchange(self.session, named(self.session, queue), changes)

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        """Return the next entries, bucket by bucket."""
        return _list(self.session, self.incarnations.of(self.session, queue), after, limit)


def _reserve(
    session: Session, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve the free keys; returns the present entry of each."""
    first = {entry.key: entry for entry in reversed(entries)}
    current: dict[str, DedupeEntry] = {}
    for bucket, keys in _chunks(first):
        wanted = [first[key] for key in keys]
        for _ in range(_ATTEMPTS):
            rows = _read(session, queue, bucket, keys)
            free = [entry for entry in wanted if entry.key not in rows or rows[entry.key][1] <= now]
            if not free or session.apply(
                [_reservation(queue, bucket, entry, rows, window, now) for entry in free]
            ):
                break
        else:
            raise StoreUnavailable(
                f"dedupe keys of queue {queue!r} are reserved by others all the time: try again"
            )
        taken = {entry.key for entry in free}
        current |= {key: DedupeEntry(key, row[0], row[2]) for key, row in rows.items() if key not in taken}
        current |= {entry.key: DedupeEntry(entry.key, entry.message_id) for entry in free}
    return tuple(current[entry.key] for entry in entries)


def _confirm(session: Session, queue: str, entries: Sequence[DedupeEntry], now: int) -> None:
    """Mark the messages of the entries as stored."""
    stored = {entry.key: entry.message_id for entry in entries}
    for bucket, chunk in _chunks(stored):
        for _ in range(_ATTEMPTS):
            rows = _read(session, queue, bucket, chunk)
            statements = [
                (
                    _CONFIRM,
                    (_ttl(expires_at - now, _CONFIRMED_GRACE), queue, bucket, key, message_id, expires_at),
                )
                for key, (message_id, expires_at, confirmed) in rows.items()
                if message_id == stored[key] and not confirmed and expires_at > now
            ]
            if not statements or session.apply(statements):
                break
        else:
            raise StoreUnavailable(
                f"dedupe keys of queue {queue!r} are changed by others all the time: try again"
            )


def _exchange(session: Session, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
    """Make the changes whose ``before`` stands, those of a bucket together; returns what stands then."""
    by_key = {UNIQUE_PREFIX + change.key: change for change in changes}
    current: dict[str, str] = {}
    for bucket, keys in _chunks(by_key):
        for _ in range(_ATTEMPTS):
            rows = dict(session.read(_UNIQUE, (queue, bucket, keys)))
            wanted = [
                (key, by_key[key])
                for key in keys
                if by_key[key].before == rows.get(key) and by_key[key].before != by_key[key].after
            ]
            if not wanted:
                break
            if session.apply([_change(queue, bucket, key, change) for key, change in wanted]):
                rows |= {key: change.after for key, change in wanted}
                break
        else:
            raise StoreUnavailable(
                f"unique keys of queue {queue!r} are changed by others all the time: try again"
            )
        current |= rows
    return tuple(current.get(key) for key in by_key)


def _change(queue: str, bucket: int, key: str, change: KeyChange) -> Statement:
    if change.before is None:
        return _ENTER, (queue, bucket, key, change.after, _NEVER)
    if change.after is None:
        return _TAKE_OUT, (queue, bucket, key, change.before)
    return _SET, (change.after, queue, bucket, key, change.before)


def _list(session: Session, queue: str, after: str, limit: int) -> tuple[KeyEntry, ...]:
    """Return the next entries after a key, in its bucket and in those after it."""
    last, found = UNIQUE_PREFIX + after, list[KeyEntry]()
    start = f"{last}\0" if after else last
    for bucket in range(_bucket(last) if after else 0, _BUCKETS):
        rows = _between(session, (queue, bucket), start, UNIQUE_END, limit - len(found))
        found += [KeyEntry(key.removeprefix(UNIQUE_PREFIX), value) for key, value in rows]
        if len(found) == limit:
            break
        start = UNIQUE_PREFIX
    return tuple(found)


def _between(
    session: Session, place: tuple[str, int], start: str, end: str, limit: int
) -> list[tuple[str, str]]:
    """Read the next entries of a bucket from a key until before another one.

    Where one read would cross too many tombstones, of keys that were taken out, it is done part after part.
    """
    try:
        return session.read(_LIST, (*place, start, end, limit))
    except TombstonesRefused:
        parts = list(pairwise(_cuts(start, end)))
        if len(parts) == 1:
            raise
    found: list[tuple[str, str]] = []
    for low, high in parts:
        if len(found) < limit:
            found += _between(session, place, low, high, limit - len(found))
    return found


def _cuts(start: str, end: str) -> list[str]:
    """Cut a range of keys at the first letter in which they may differ."""
    for length in range(len(start) + 1):
        cuts = [start[:length] + letter for letter in _LETTERS]
        if inner := [each for each in cuts if start < each < end]:
            return [start, *inner, end]
    return [start, end]


def drop(session: Session, queue: str, written: int) -> None:
    """Delete the keys of the queue, and those that are written until the moment."""
    for bucket in range(_BUCKETS):
        session.write([(_DROP, (written, queue, bucket))])


def _reservation(
    queue: str, bucket: int, entry: DedupeEntry, rows: dict[str, _Row], window: int, now: int
) -> tuple[str, tuple[object, ...]]:
    ttl, until = _ttl(window), now + window
    if entry.key not in rows:
        return _RESERVE, (queue, bucket, entry.key, entry.message_id, until, ttl)
    message_id, expires_at, _ = rows[entry.key]
    return _TAKE_OVER, (ttl, entry.message_id, until, queue, bucket, entry.key, expires_at, message_id)


def _read(session: Session, queue: str, bucket: int, keys: Sequence[str]) -> dict[str, _Row]:
    rows = session.read(_CURRENT, (queue, bucket, list(keys)))
    return {
        key: (message_id, expires_at, bool(confirmed))
        for key, message_id, expires_at, confirmed in rows
        if message_id is not None and expires_at is not None
    }


def _chunks(keys: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    buckets: dict[int, list[str]] = {}
    for key in dict.fromkeys(keys):
        buckets.setdefault(_bucket(key), []).append(key)
    for bucket, members in buckets.items():
        for start in range(0, len(members), _AT_ONCE):
            yield bucket, members[start : start + _AT_ONCE]


def _bucket(key: str) -> int:
    return blake2b(key.encode(), digest_size=1).digest()[0] % _BUCKETS


def _ttl(window: int, grace: int = _GRACE) -> int:
    return min(max(window, 0) // 1_000_000 + grace, _LONGEST_TTL)
