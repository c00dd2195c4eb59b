"""Slices as they are stored: what their columns mean, and changes of some of them.

In every statement ``s`` is a slice, and the first value is the key of its shard. The arrays of the second and third
name slices by bundle and first position.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.storage.postgresql.connections import Id, Sql
from shardq.storage.requests import BLOCKED, BLOCKED_AFTER, PENDING, Bundle, Span

__all__ = [
    "BEHIND",
    "BUNDLE",
    "CHOSEN",
    "DUE",
    "HEAD",
    "HEADS",
    "HOLDER",
    "MANY_HEADS",
    "NOT_BLOCKED",
    "PIECE",
    "PIECES",
    "STILL_BEHIND",
    "TURN",
    "UNDELIVERED",
    "Change",
    "Piece",
    "bundle_of",
    "keys_of",
    "named",
]

BEHIND = 1 << 61
"""The part of a due time that is added while others of the group are before the slice: it lies beyond all moments
then."""

STILL_BEHIND = f"CASE WHEN s.due >= {BEHIND} THEN {BEHIND} ELSE 0 END"
"""The part that is added to a slice's new due time, so that it stays where it is in its group."""

_BLOCKS = f"(s.token IS NOT NULL AND s.due % {BEHIND} > {BLOCKED_AFTER})"
NOT_BLOCKED = f"NOT {_BLOCKS}"
"""Whether a slice does not block its group."""

HOLDER = f"CASE WHEN {_BLOCKS} THEN '{BLOCKED.hex()}'::uuid ELSE s.token END"
"""The token under which a slice is held."""

BUNDLE = (
    "s.bundle_id, s.priority, s.sent_due, s.enqueued_at, s.sent_count, s.data, s.expires_at, s.message_group"
)
"""The columns of a slice's bundle, in the order of its fields."""

DUE = f"s.due % {BEHIND}"
"""When a slice is due, also one that is behind others of its group."""

HEAD = f"s.message_group <> '' AND s.processed_at IS NULL AND s.due < {BEHIND}"
"""Whether a slice is the first of its group, as the index of those has it."""

TURN = "greatest(s.due, s.turn)"
"""Where the first slice of a group is in the order of claims: behind those that were due when its turn came."""

HEADS = 32
"""How many first slices are read at a time: those go by their due times, further ones by their turns."""

MANY_HEADS = 256
"""The most that a claim of many messages reads at a time. Each read crosses what the earlier ones have found."""

UNDELIVERED = "s.deliveries + s.unstarted::int <= 1"
"""Whether a slice that is held was never delivered before."""

CHOSEN = "s.shard_key = a.shard_key AND s.bundle_id = a.bundle_id AND s.first = a.first"
"""Which slices are those that ``a`` names."""


def named(arrays: str, columns: str) -> str:
    """Return a query that names slices as ``a``, out of arrays of columns.

    The server is kept from seeing that all are of one shard. It would read that whole shard where it takes it for
    small, as it does when the shard was empty at the last vacuum.
    """
    return f"(SELECT $1::bigint AS shard_key, u.* FROM unnest({arrays}) AS u ({columns}) OFFSET 0) AS a"


PIECES = named("$2::uuid[], $3::int[]", "bundle_id, first")

PIECE = f"""
    s.bundle_id, s.first, s.count, s.sent_count, {HOLDER}, s.token, s.processed_at IS NOT NULL, s.message_group,
    s.place, s.data IS NULL, {DUE}, s.due < {BEHIND} AND s.processed_at IS NULL
"""
"""The columns of a `Piece`, in the order of its fields."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A slice as it is stored, or a part of it that is a separate slice now."""

    bundle_id: bytes
    first: int
    count: int
    sent_count: int
    holder: bytes | None
    token: bytes | None  # that of the claim, where the slice blocks its group
    is_processed: bool
    group: bytes
    place: int
    is_long: bool
    due: int
    is_first: bool  # of its group, if it has one

    @property
    def end(self) -> int:
        """The position behind its last message."""
        return self.first + self.count

    def is_held(self, span: Span, now: int) -> bool:
        """Return whether it is held under the token of a span, or by nobody if that is `PENDING`."""
        if span.token == PENDING:
            return self.token is None or self.due <= now
        return self.holder == span.token


class Change:
    """A change of some slices."""

    def __init__(self, assignments: str) -> None:
        self._statement = f"UPDATE @slice s SET {assignments} FROM {PIECES} WHERE {CHOSEN}"

    def run(self, sql: Sql, shard_key: int, pieces: Sequence[Piece], *values: object) -> None:
        """Carry it out, with further values from the fourth parameter on."""
        if pieces:
            sql.run(self._statement, shard_key, *keys_of(pieces), *values)


def bundle_of(row: Sequence[object], data: bytes) -> Bundle:
    """Return a bundle out of the columns of `BUNDLE`, with its data."""
    bundle_id, priority, due, at, count, _, expires_at, group = row
    assert isinstance(group, bytes)
    return Bundle(bundle_id, priority, due, at, count, data, expires_at, group.decode())  # type: ignore[arg-type]


def keys_of(pieces: Sequence[Piece]) -> tuple[list[Id], list[int]]:
    """Return what names slices in a statement."""
    return [Id(piece.bundle_id) for piece in pieces], [piece.first for piece in pieces]
