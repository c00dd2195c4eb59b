"""Changing bundles on the condition that they are as they were seen.

Each document is changed alone, atomically; the state that was read is the condition. Documents that others changed
meanwhile are read and decided again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
from bson import encode

from shardq.base.shard import Shard
from shardq.storage import writing
from shardq.storage.mongodb.documents import (
    BARRED,
    CONTENT,
    FINISHED_AT,
    MOVED,
    STAMP,
    STATE,
    Document,
    Kept,
    Row,
    Slice,
    moved_field,
    position_fields,
    state_of,
)
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.slicing import Range

__all__ = ["Change", "Decision", "attempts", "change", "condition", "finish", "new_stamp", "setting"]

_PAUSES = tuple(0.002 * min(attempt, 10) for attempt in range(1, 40))  # seconds between attempts


class Change(msgspec.Struct, frozen=True):
    """The new content of a bundle: its slices, and its kept messages. A bundle that holds neither is finished."""

    slices: tuple[Slice, ...]
    kept: tuple[Kept, ...] = ()
    moved: tuple[Range, ...] = ()  # what is finished by this because it is stored elsewhere


Decision: TypeAlias = Callable[[Row], Change | None]  # None: leave it as it is


def attempts(shard: Shard) -> Iterator[int]:
    """Count the attempts at a change that others may get ahead of; raises StoreUnavailable after 40 of them."""
    return writing.attempts(shard, _PAUSES)


def change(
    rows: ShardRows, ids: Iterable[bytes], decide: Decision, stamp: int
) -> tuple[dict[bytes, Row], set[bytes]]:
    """Change each of the bundles as decided; return what was seen of those that are stored, before the change.

    A bundle that carries the stamp was changed by an earlier command with the same stamp. The second result has the ids
    of such bundles that this call did not see before that change.
    """
    seen: dict[bytes, Row] = {}
    done: set[bytes] = set()
    pending = list(dict.fromkeys(ids))
    with writing.after_a_write(lambda: rows.has_changed):
        for _ in attempts(rows.shard):
            found = rows.read(pending)
            fresh = {row.id: row for row in found.values() if row.stamp != stamp}
            done |= found.keys() - fresh.keys() - seen.keys()
            for gone in set(pending) - found.keys():
                seen.pop(gone, None)
            seen |= fresh
            plan = [(row, new) for row in fresh.values() if (new := decide(row)) is not None]
            if rows.change(list(_statements(plan, stamp))) == len(plan):
                break
            pending = [row.id for row, _ in plan]
    return seen, done


def new_stamp() -> int:
    """Return a number by which a change is recognised."""
    return int.from_bytes(os.urandom(8), "big") >> 1


def condition(row: Row) -> Document:
    """Return the filter for a document that is as it was seen, without its id."""
    return {field: row.raw.get(field) for field in (*STATE, BARRED)}


def finish(stamp: int, moved: Iterable[Range] = ()) -> Document:
    """Return the update that leaves nothing of a bundle but its id, for so long as a repeated append may come.

    Messages that were moved elsewhere stay known for as long.
    """
    ranges = moved_field(moved)
    return {
        "$set": {STAMP: stamp} | ({MOVED: ranges} if ranges else {}),
        "$unset": dict.fromkeys((*CONTENT, *STATE, BARRED), 1),
        "$currentDate": {FINISHED_AT: True},
    }


def _statements(plan: Iterable[tuple[Row, Change]], stamp: int) -> Iterator[Statement]:
    """Join bundles that are changed alike into one statement."""
    groups: dict[bytes, tuple[Document, Document, list[bytes]]] = {}
    for row, new in plan:
        seen, update = condition(row), _update(row, new, stamp)
        groups.setdefault(encode({"seen": seen, "update": update}), (seen, update, []))[2].append(row.id)
    for seen, update, ids in groups.values():
        yield Statement({"_id": {"$in": ids}} | seen, update)


def _update(row: Row, new: Change, stamp: int) -> Document:
    state = state_of(row.count, new.slices, new.kept)
    if row.group and new.slices:
        state |= position_fields(row.base, new.slices, behind=row.is_behind)
    moved = (*row.moved, *new.moved)
    if not state:
        return finish(stamp, moved)
    always = {STAMP: stamp} | ({MOVED: moved_field(moved)} if new.moved else {})
    return setting(row, state, always)


def setting(row: Row, state: Document, more: Document | None = None) -> Document:
    """Return the update that gives a bundle this state, and more fields."""
    gone = {field: 1 for field in STATE if field in row.raw and field not in state}
    return {"$set": state | (more or {})} | ({"$unset": gone} if gone else {})
