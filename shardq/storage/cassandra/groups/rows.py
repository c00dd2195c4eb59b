"""A group as it is stored: one value, and the rows that follow from it.

The value has the slices of the group in their order: held ones first, then pending ones. If many wait, only the first
ones are in the value, its window. The rest is behind it, each bundle in a separate row. The window is never empty
while something is behind. Every change of a group is conditional on its value and writes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TypeAlias

import msgspec

from shardq.base.outgoing_message import Bundle
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import (
    BEHIND,
    GROUP,
    LEASE,
    READY,
    BundleRow,
    Head,
    Key,
    Slice,
    Tally,
    due_row_of,
    encode,
)
from shardq.storage.requests import BLOCKED, BLOCKED_AFTER

__all__ = [
    "WINDOW",
    "Group",
    "Member",
    "behind_key",
    "bundle_row",
    "decode_behind",
    "decode_front",
    "decode_group",
    "fronts_of",
    "group_id",
    "group_key",
    "keys_of",
    "lease_of",
    "leases_of",
    "new_slice",
    "place_of",
    "rows_of",
]

WINDOW = 64
"""The number of slices that wait in the value of a group; later ones are behind them."""

_SHORT = 256  # bytes of a group's value that its ready row has too; a read takes 32 of these and more
_ID_BYTES = 16
_PLACE_BYTES = 8

Fronts: TypeAlias = Mapping[bytes, Slice]  # first slices, by the ids of their groups


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A slice of a group."""

    slice: Slice
    due: int  # deliverable from; of one that is held, the end of its lease
    place: int  # of its first message in the group

    def part(self, first: int, end: int) -> Member:
        """Return the messages between two positions that lie within it."""
        return Member(self.slice.part(first, end), self.due, self.place + first - self.slice.first)

    @property
    def rank(self) -> tuple[int, int, bytes, int]:
        """The order of the first slices of groups for claims."""
        return self.slice.priority, self.due, self.slice.bundle_id, self.slice.first


class Group(msgspec.Struct, frozen=True, array_like=True):
    """The messages of a group.

    Its held messages are the front part, under one token except those that block the group.
    """

    name: str
    members: tuple[Member, ...] = ()
    held: int = 0  # this number of them is held
    token: bytes = b""
    number: int = 0  # of the lease row, which it may share with other groups
    ready_at: int = 0  # where a first slice that is not held is found: no earlier than it came there
    next_place: int = 0
    begin: int = 0  # no row behind has a place before
    behind: int = 0  # rows
    version: int = 0

    @property
    def waiting(self) -> tuple[Member, ...]:
        """The slices that are in the window and not held."""
        return self.members[self.held :]

    def holder(self, each: Member) -> bytes:
        """Return the token under which one of the held slices is."""
        return BLOCKED if each.due > BLOCKED_AFTER else self.token

    def held_under(self, token: bytes) -> list[Member]:
        """Return the slices held under a token."""
        return [each for each in self.members[: self.held] if self.holder(each) == token]

    @property
    def lease_key(self) -> Key:
        """Where the lease row is that it is in while it is held."""
        return Key(LEASE, 0, 0, self.token, self.number)

    @property
    def hold(self) -> tuple[Key, int, Slice] | None:
        """Its part of its lease row, and the key of that; None while nothing is held."""
        return (self.lease_key, self.members[0].due, self.members[0].slice) if self.held else None

    @property
    def is_empty(self) -> bool:
        """True when it has no messages: then nothing is stored of it."""
        return not self.members

    def with_members(self, members: Sequence[Member], now: int, held: int = 0) -> Group:
        """Return the group with other slices, the first ``held`` of which are held as before."""
        ready_at = self.ready_at
        if members and (self.held or held or not self.members or members[0] != self.members[0]):
            ready_at = 0 if held else max(members[0].due, now)
        lease = (self.token, self.number) if held else (b"", 0)
        rest = (ready_at, self.next_place, self.begin, self.behind, self.version)
        return Group(self.name, tuple(members), held, *lease, *rest)

    def held_by(self, token: bytes, members: Sequence[Member], held: int) -> Group:
        """Return the group with its first slices held under another token."""
        rest = (0, self.next_place, self.begin, self.behind, self.version)
        return Group(self.name, tuple(members), held, token, 0, *rest)


class Front(msgspec.Struct, frozen=True, array_like=True):
    """The value of the ready row by which a group is found; it begins as that of any ready row."""

    count: int
    total: int
    enqueued_at: int
    expires_at: int | None
    size: int
    group: bytes
    due: int  # of the slice, where the row is at a later place
    value: bytes = b""  # of the group, if it is short: a claim that uses it need not read the group


decode_group = msgspec.msgpack.Decoder(Group).decode
decode_front = msgspec.msgpack.Decoder(Front).decode
decode_behind = msgspec.msgpack.Decoder(tuple[Slice, ...]).decode


def group_id(name: str) -> bytes:
    """Return the name of a group in keys."""
    return blake2b(name.encode(), digest_size=_ID_BYTES).digest()


def group_key(row_id: bytes) -> Key:
    """Return the key under which a group is stored."""
    return Key(GROUP, 0, 0, row_id, 0)


def behind_key(row_id: bytes, place: int) -> Key:
    """Return the key of the bundle that was sent to this place behind the window."""
    return Key(BEHIND, 0, 0, row_id + place.to_bytes(_PLACE_BYTES, "big"), 0)


def place_of(behind_id: bytes) -> int:
    """Return the place of a row behind the window."""
    return int.from_bytes(behind_id[_ID_BYTES:], "big")


def new_slice(bundle: Bundle) -> Slice:
    """Make the slice of a bundle that is sent."""
    sent = (bundle.priority, bundle.count, bundle.enqueued_at, bundle.due)
    return Slice(bundle.id, 0, bundle.count, 0, *sent, expires_at=bundle.expires_at, size=len(bundle.data))


def rows_of(group: Group) -> dict[Key, bytes]:
    """Return the rows by which claims and probes find a group that is not held: those of its first slice.

    It has a ready row, and a due row if it is delayed. One that is held is in a lease row. The ready row of a short
    group has the group's value. That is a hint: a change that is made from it is conditional on the group itself.
    """
    rows = dict.fromkeys(keys_of(group), b"")
    for ready in islice(rows, 1):
        first, value = group.members[0], encode(group)
        each = first.slice
        sent = (each.count, each.total, each.enqueued_at, each.expires_at, each.size)
        hint = value if len(value) <= _SHORT else b""
        rows[ready] = encode(Front(*sent, group_id(group.name), first.due, hint))
    return rows


def keys_of(group: Group) -> list[Key]:
    """Return where these rows are, the ready row first."""
    if group.is_empty or group.held:
        return []
    first = group.members[0]
    each = first.slice
    keys = [Key(READY, each.priority, group.ready_at, each.bundle_id, each.first)]
    if first.due == group.ready_at:
        keys.append(due_row_of(first.due, each.bundle_id))
    return keys


def bundle_row(each: Slice, group: str, data: bytes) -> BundleRow:
    """Return the bundle that a slice of a group is of, as far as a claim has to know it."""
    sent = (each.priority, each.due, each.enqueued_at, each.total)
    return BundleRow(each.bundle_id, Head(*sent, each.expires_at, group), Tally(each.total), b"", None, data)


def leases_of(groups: Iterable[Group]) -> list[LeaseRow]:
    """Return the lease rows that there are when there are these groups: one for what a claim holds until one moment."""
    fronts: dict[tuple[bytes, int, int], dict[bytes, Slice]] = {}
    for group in groups:
        if group.held:
            first = group.members[0]
            held = fronts.setdefault((group.token, group.number, first.due), {})
            held[group_id(group.name)] = first.slice
    return [lease_of(*name, held) for name, held in fronts.items()]


def lease_of(token: bytes, number: int, due: int, fronts: Fronts) -> LeaseRow:
    """Make the lease row of groups that are held under a token until one moment."""
    ids = sorted(fronts)
    return LeaseRow(token, number, due, True, tuple(fronts[each] for each in ids), groups=tuple(ids))


def fronts_of(lease: LeaseRow) -> Iterator[tuple[bytes, Slice]]:
    """Yield the groups of a lease row, with their first slices."""
    return zip(lease.groups, lease.slices, strict=True)
