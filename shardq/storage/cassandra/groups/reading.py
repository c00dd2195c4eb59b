"""Reading groups, the bundles behind their windows, and the rows by which they are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from shardq.base.shard import Shard
from shardq.storage.cassandra.groups.rows import (
    Group,
    Member,
    behind_key,
    decode_behind,
    decode_front,
    decode_group,
    fronts_of,
    group_id,
    place_of,
)
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import GROUP, CursorPosition, Key, Slice
from shardq.storage.cassandra.scanning import FIRST, scan
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow

__all__ = ["Candidate", "GroupReader", "GroupRow", "Overtaken", "of_lease", "of_ready_row"]

_AT_ONCE = 50
_BEHIND_AT_ONCE = 1000
_GROUPS = "SELECT id, value FROM entry WHERE shard = ? AND kind = 7 AND priority = 0 AND due = 0 AND id IN ?"
_BEHIND = (
    "SELECT id, value FROM entry WHERE shard = ? AND kind = 8 AND priority = 0 AND due = 0 "
    "AND id >= ? AND id < ? LIMIT ?"
)
_KNOWN = "SELECT id, value FROM entry WHERE shard = ? AND kind = 3 AND priority = 0 AND due = 0 AND id IN ?"


class Overtaken(Exception):
    """Others have changed a group since it was read."""


class GroupRow(msgspec.Struct, frozen=True):
    """A group as it was read or written."""

    group: Group
    seen: bytes | None = None  # its value in the storage, for conditions
    drawn: tuple[Key, ...] = ()  # rows behind that are in its window here, and not yet in the storage


class GroupReader:
    """Reads the groups of one shard."""

    def __init__(self, session: Session, shard: Shard) -> None:
        self._session, self._shard = session, str(shard)
        self.row = WideRow(session, str(shard))

    def groups(self, ids: Iterable[bytes]) -> dict[bytes, GroupRow]:
        """Read groups by their ids; those that have no messages are not there."""
        unique = iter(dict.fromkeys(ids))
        chunks = []
        while chunk := list(islice(unique, _AT_ONCE)):
            chunks.append(self._session.start_read(_GROUPS, (self._shard, chunk)))
        rows = (row for answer in chunks for row in answer() if row[1])
        return {row_id: GroupRow(decode_group(value), value) for row_id, value in rows}

    def of_bundles(self, ids: Iterable[bytes]) -> dict[bytes, GroupRow]:
        """Read the groups that bundles are of, those bundles that are stored."""
        heads = self.row.heads(ids).values()
        return self.groups({group_id(each.head.group) for each in heads})

    def known(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return which of these bundles are stored or were finished a short time ago."""
        unique = iter(dict.fromkeys(ids))
        found: set[bytes] = set()
        while chunk := list(islice(unique, _AT_ONCE)):
            rows = self._session.read(_KNOWN, (self._shard, chunk))
            found.update(row_id for row_id, value in rows if value is not None)
        return found

    def filled(self, row: GroupRow, rows: int) -> GroupRow:
        """Add up to ``rows`` rows behind to the window; raises Overtaken when it has changed since it was read.

        The group is read again after every change that has begun, so later reads behind it are no older.
        """
        group, row_id = row.group, group_id(row.group.name)
        self._settle(row)
        found = list(islice(self.behind(group, group.begin, rows), rows))
        if len(found) < min(rows, group.behind):
            raise Overtaken
        members = [each for _, parts in found for each in parts]
        last = found[-1][0]
        wider = msgspec.structs.replace(
            group, members=(*group.members, *members), begin=last + 1, behind=group.behind - len(found)
        )
        drawn = (*row.drawn, *(behind_key(row_id, place) for place, _ in found))
        return GroupRow(wider, row.seen, drawn)

    def behind(
        self, group: Group, place: int, rows: int = _BEHIND_AT_ONCE
    ) -> Iterator[tuple[int, list[Member]]]:
        """Read what is behind the window from a place on, in order: the place of each row, and its slices."""
        row_id = group_id(group.name)
        end = behind_key(row_id, group.next_place).id
        at = max(place, group.begin)
        while group.behind:
            start = behind_key(row_id, at).id
            found = self._session.read(_BEHIND, (self._shard, start, end, rows))
            for behind_id, value in found:
                at = place_of(behind_id)
                yield at, members_of(at, decode_behind(value))
            if len(found) < rows:
                return
            at += 1

    def behind_at(self, group: Group, place: int) -> list[Member]:
        """Read what is left of the bundle that was sent to this place behind the window."""
        if place < group.begin:
            return []
        return next((parts for at, parts in self.behind(group, place, 1) if at == place), [])

    def settled_behind(self, row: GroupRow, place: int) -> list[Member]:
        """Read as :meth:`behind_at`, for a change; raises Overtaken when the group has changed since it was read."""
        self._settle(row)
        return self.behind_at(row.group, place)

    def every_group(self, now: int | None = None) -> Iterator[GroupRow]:
        """Read all groups; given a moment, those that are found above the low watermarks."""
        ids = iter(dict.fromkeys(self._ids(now)))
        while chunk := list(islice(ids, _AT_ONCE)):
            yield from self.groups(chunk).values()

    def from_group(self, row_id: bytes) -> Iterator[GroupRow]:
        """Read all groups from one on, in the order of their ids."""
        start, end = (0, 0, row_id, FIRST), (0, 1, b"", FIRST)
        rows = scan(self._session, self._shard, GROUP, start, end, columns="value", page=_AT_ONCE)
        return (GroupRow(decode_group(value), value) for *_, value in rows if value)

    def _settle(self, row: GroupRow) -> None:
        """Let what is read next be no older than the group; raises Overtaken when that has changed."""
        settled = self._session.read_serial(_GROUPS, (self._shard, [group_id(row.group.name)]))
        if not settled or settled[0][1] != row.seen:
            raise Overtaken

    def _ids(self, now: int | None) -> Iterator[bytes]:
        ready = self.row.all_ready(now, bodies=False)
        yield from (decode_front(each.seen).group for each in ready if each.seen is not None)
        leases = self.row.every_lease() if now is None else self.row.all_leases(now)
        yield from (group for lease in leases for group in lease.groups)


def members_of(place: int, slices: Iterable[Slice]) -> list[Member]:
    """Return the slices of a bundle that was sent to a place, as members of its group."""
    return [Member(each, each.due, place + each.first) for each in slices]


class Candidate(msgspec.Struct, frozen=True):
    """A group, and the content of its ready row, if it has one.

    That content is a hint about the group: an older client does not write it anew. A claim that was in vain reads the
    group. The data cannot be wrong, as a bundle never changes.
    """

    rank: tuple[int, int, bytes, int]
    group: bytes
    place: CursorPosition = (0, b"", 0)  # of the ready row, within its priority
    value: bytes = b""  # of the group, if it is short
    data: bytes | None = None  # of the bundle of the first slice, if it is small

    @property
    def priority(self) -> int:
        """That of the first slice."""
        return self.rank[0]

    @property
    def bundle_id(self) -> bytes:
        """The bundle of the first slice."""
        return self.rank[2]


def of_ready_row(
    priority: int, due: int, bundle_id: bytes, first: int, value: bytes, _written_at: int, data: bytes | None
) -> Candidate:
    """Return the group of a ready row."""
    front = decode_front(value)
    rank = (priority, front.due, bundle_id, first)
    return Candidate(rank, front.group, (due, bundle_id, first), front.value, data)


def of_lease(lapsed: LeaseRow) -> Iterator[Candidate]:
    """Yield the groups of an expired lease row."""
    for row_id, each in fronts_of(lapsed):
        yield Candidate((each.priority, lapsed.due, each.bundle_id, each.first), row_id)
