"""The order within groups: which slice is the first of its group, and the ones after it.

The slices of a group are ordered by their places. Two rules hold at the end of every transaction:

- The first slice of a group has its due time, or the end of its lease. All others are ``BEHIND``, which is added to
  their due times, so that neither claims nor probes find them.
- The held messages of a group are its front part, and one claim holds all of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, takewhile
from typing import Any, TypeAlias

from shardq.storage.sqlite import queues
from shardq.storage.sqlite.bundles import BEHIND, BUNDLE, Change

__all__ = ["Row", "arm", "deliverable", "groups_of", "leave_alone", "place_of", "put_back", "strip"]

Row: TypeAlias = tuple[int, int, int, int, bytes, int, int, int, int, bytes | None, int | None, str]
"""A slice's key, position and deliveries, and the fields of its bundle: the sixth is the data."""

_COLUMNS = f"slice_key, first, count, deliveries + 1, {BUNDLE}"
_FIRST = f"""
    SELECT {_COLUMNS}, place, token IS NOT NULL FROM [slice] INDEXED BY [slice_by_due]
    WHERE shard_key = ? AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due <= ? AND processed_at IS NULL
    ORDER BY priority, due, bundle_id, first
"""
_FOLLOWING = f"""
    SELECT {_COLUMNS}, due - {BEHIND}, token IS NOT NULL FROM [slice] INDEXED BY [slice_by_group]
    WHERE shard_key = ? AND message_group = ? AND place > ? AND message_group <> '' AND processed_at IS NULL
    ORDER BY place
"""

_GROUPS = Change("SELECT DISTINCT message_group FROM [slice] WHERE {0}")
_FIRST_PLACES = Change("SELECT message_group, min(place) FROM [slice] WHERE {0} GROUP BY message_group")
_PLACE = """
    SELECT place + ?3 - first FROM [slice]
    WHERE bundle_id = ?2 AND first <= ?3 AND shard_key = ?1 AND processed_at IS NULL
    ORDER BY first DESC LIMIT 1
"""
_BEHIND = """
    SELECT slice_key, token FROM [slice] INDEXED BY [slice_by_group]
    WHERE shard_key = ? AND message_group = ? AND place > ? AND message_group <> '' AND processed_at IS NULL
    ORDER BY place
"""
_ARM = f"""
    UPDATE [slice] SET due = due - {BEHIND} WHERE due >= {BEHIND} AND slice_key = (
        SELECT slice_key FROM [slice] INDEXED BY [slice_by_group]
        WHERE shard_key = ? AND message_group = ? AND message_group <> '' AND processed_at IS NULL
        ORDER BY place LIMIT 1
    )
"""
_STRIP = Change(f"""
    UPDATE [slice] SET due = ?2 + {BEHIND}, token = NULL, unstarted = 0 WHERE {{0}} AND token IS NOT NULL
""")
_PUT_BACK = Change(f"""
    UPDATE [slice] SET due = iif(deliveries + unstarted > 1, ?2, min(sent_due, ?2)) + {BEHIND}, token = NULL,
        deliveries = deliveries - 1 + unstarted, unstarted = 0
    WHERE {{0}}
""")


def groups_of(sql: sqlite3.Connection, slice_keys: Sequence[int]) -> list[str]:
    """Return the groups of some slices."""
    return [group for (group,) in _GROUPS.find(sql, slice_keys)]


def arm(sql: sqlite3.Connection, queue: str, shard_key: int | None, groups: Sequence[str]) -> None:
    """Let the first slice of each group be delivered when it is due, and notify waiting consumers."""
    if sum(sql.execute(_ARM, (shard_key, group)).rowcount for group in groups):
        queues.announce(sql, queue)


def place_of(sql: sqlite3.Connection, shard_key: int | None, bundle_id: bytes, position: int) -> int:
    """Return the place of a message that is stored."""
    return int(sql.execute(_PLACE, (shard_key, bundle_id, position)).fetchone()[0])


def put_back(sql: sqlite3.Connection, shard_key: int, slice_keys: Sequence[int], now: int) -> None:
    """Release, without counting the delivery, messages held behind slices that were released."""
    if held := list(_held_behind(sql, shard_key, slice_keys)):
        _PUT_BACK.run(sql, held, now)


def leave_alone(sql: sqlite3.Connection, shard_key: int, slice_keys: Sequence[int], now: int) -> None:
    """Release, without counting the delivery, messages held behind slices that stay held."""
    named = set(slice_keys)
    behind: list[int] = []
    for group, place in _FIRST_PLACES.find(sql, slice_keys).fetchall():
        rows = sql.execute(_BEHIND, (shard_key, group, place)).fetchall()
        held = [key for key, _ in takewhile(lambda row: row[1] is not None, rows)]
        behind += dropwhile(named.__contains__, held)
    if behind:
        _PUT_BACK.run(sql, behind, now)


def strip(sql: sqlite3.Connection, slice_keys: Sequence[int], now: int) -> None:
    """Take slices from their holder, to wait behind those that another claim took."""
    if slice_keys:
        _STRIP.run(sql, slice_keys, now)


def _held_behind(sql: sqlite3.Connection, shard_key: int, slice_keys: Sequence[int]) -> Iterator[int]:
    released = set(slice_keys)
    for group, place in _FIRST_PLACES.find(sql, slice_keys).fetchall():
        for key, token in sql.execute(_BEHIND, (shard_key, group, place)):
            if key in released:
                continue
            if token is None:
                break
            yield key


def deliverable(
    sql: sqlite3.Connection, shard_key: int, now: int, limit: int
) -> tuple[list[Row], int, list[int]]:
    """Return what a claim of groups takes, in order; how many messages are wanted still; and which slices others lose.

    First come the first slices of groups. While there is room, what follows them is taken too, as far as it is due.
    Where a lease has run out, the rest that was held under it goes with it, even if that was extended.
    """
    firsts: list[tuple[Any, ...]] = []
    wanted = limit
    cursor = sql.execute(_FIRST, (shard_key, now))
    for row in cursor:
        firsts.append(row)
        wanted -= row[2]
        if wanted <= 0:
            break
    cursor.close()
    taken: list[Row] = [row[:-2] for row in firsts]
    lost: list[int] = []
    for row in firsts:
        group, place, lapsed = row[-3:]
        if wanted > 0 or lapsed:
            followers = sql.execute(_FOLLOWING, (shard_key, group, place))
            wanted = _follow(followers, now, wanted, taken, lost)
    return taken, wanted, lost


def _follow(
    followers: Iterable[tuple[Any, ...]], now: int, wanted: int, taken: list[Row], lost: list[int]
) -> int:
    """Add what follows the first slice of a group to what is taken or lost; returns how many are wanted still."""
    for row in followers:
        due, held = row[-2:]
        if wanted > 0 and (held or due <= now):
            taken.append(row[:-2])
            wanted -= row[2]
        elif held:
            lost.append(row[0])
        else:
            break
    return wanted
