"""A change of some groups of a shard: one conditional batch, of their values and of all that follows from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from shardq.base.outgoing_message import Bundle
from shardq.base.shard import Shard
from shardq.errors import ShardqError
from shardq.storage.cassandra.bundles import LATE
from shardq.storage.cassandra.changing import Change, lower
from shardq.storage.cassandra.groups.reading import GroupReader, GroupRow
from shardq.storage.cassandra.groups.rows import (
    WINDOW,
    Group,
    Member,
    behind_key,
    fronts_of,
    group_id,
    group_key,
    keys_of,
    lease_of,
    new_slice,
    rows_of,
)
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.queues import parted
from shardq.storage.cassandra.rows import CursorPosition, Head, Key, Slice, encode
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.listening import of_process
from shardq.storage.per_process import OwnLock

__all__ = ["Draft", "KnownGroups", "Moment"]

Moment = Callable[[], int]
_Held: TypeAlias = tuple[dict[bytes, GroupRow], dict[Key, LeaseRow]]
_MOST = 256  # tokens that are remembered
_SMALL = 512  # bytes of a bundle that its group's ready row has too; a read takes 32 of these and more


class Draft:
    """Groups as they are and as they are to be; :meth:`apply` changes all of them or none.

    Lease rows that are not given are read when they are needed.
    """

    def __init__(
        self,
        session: Session,
        shard: Shard,
        rows: Mapping[bytes, GroupRow],
        clock: Moment,
        leases: Iterable[LeaseRow] = (),
    ) -> None:
        self._session, self._shard, self._clock = session, shard, clock
        self.now = clock()
        self.change = Change(session, shard)
        self.reader = GroupReader(session, shard)
        self._leases = _LeaseRows(self.reader.row, leases)
        self._before = dict(rows)
        self._drawn = dict(rows)  # those before, with what was added to their windows
        self._after: dict[bytes, Group] = {}
        self._bodies: dict[bytes, bytes] = {}  # of small bundles that are added
        self.written: dict[bytes, GroupRow] = {}  # once it is applied

    @property
    def leases(self) -> list[LeaseRow]:
        """The lease rows that are known: as they are to be, once it is applied."""
        return self._leases.known

    def group(self, row_id: bytes) -> Group:
        """Return the group as it is in this draft."""
        return self._after.get(row_id) or self._drawn[row_id].group

    def read(self, names: Iterable[str]) -> None:
        """Read the groups of these names that are not in the draft yet."""
        more = self.reader.groups({group_id(name) for name in names} - self._before.keys())
        self._before |= more
        self._drawn |= more

    def set(self, row_id: bytes, members: Sequence[Member], held: int = 0) -> None:
        """Let the group have these slices; if none of them is left, those behind follow. Raises Overtaken."""
        if not members and self.group(row_id).behind:
            known = len(self.group(row_id).members)
            self.fill(row_id, WINDOW)
            members = self.group(row_id).members[known:]
        self._after[row_id] = self.group(row_id).with_members(members, self.now, held)

    def hold(self, row_id: bytes, token: bytes, members: Sequence[Member], held: int) -> None:
        """Let the first slices of the group be held under a token, under which nothing is."""
        self._after[row_id] = self.group(row_id).held_by(token, members, held)
        self._leases.expect_none(self._after[row_id].lease_key)

    def fill(self, row_id: bytes, rows: int) -> None:
        """Add what is behind to the window of a group that is not changed yet. Raises Overtaken."""
        assert row_id not in self._after
        self._drawn[row_id] = self.reader.filled(self._drawn[row_id], rows)

    def remove_behind(self, row_id: bytes, place: int, rest: Sequence[Slice]) -> None:
        """Leave these slices of what is behind at a place."""
        group, key = self.group(row_id), behind_key(row_id, place)
        if rest:
            self.change.write(key, encode(tuple(rest)))
        else:
            self.change.delete(key)
        self._after[row_id] = msgspec.structs.replace(group, behind=group.behind - (not rest))

    def add(self, bundle: Bundle) -> None:
        """Store a bundle at the end of its group."""
        row_id = group_id(bundle.group)
        if row_id not in self._before:
            self._before[row_id] = self._drawn[row_id] = GroupRow(Group(bundle.group))
        group = self.group(row_id)
        place, each = group.next_place, new_slice(bundle)
        self.change.store_grouped(bundle.id, Head.of(bundle, place), bundle.data)
        if len(bundle.data) <= _SMALL:
            self._bodies[bundle.id] = bundle.data
        if group.behind or len(group.members) >= WINDOW:
            self.change.write(behind_key(row_id, place), encode((each,)))
            begin = group.begin if group.behind else place
            group = msgspec.structs.replace(group, begin=begin, behind=group.behind + 1)
        else:
            members = (*group.members, Member(each, each.due, place))
            group = group.with_members(members, self.now, group.held)
        self._after[row_id] = msgspec.structs.replace(group, next_place=place + bundle.count)

    def apply(self) -> bool:
        """Do everything; False, and nothing changed, when something is no longer as it was seen."""
        before = {row_id: self._before[row_id].group for row_id in self._after}
        for row_id, after in self._leases.write(self.change, before, self._after).items():
            self._write(row_id, after)
        self.change.mark_taken()
        if not self.change.apply():
            return False
        self._announce()
        return True

    def _write(self, row_id: bytes, after: Group) -> None:
        before = self._before[row_id]
        after = msgspec.structs.replace(after, version=before.group.version + 1)
        value = None if after.is_empty else encode(after)
        self.change.replace(group_key(row_id), value, before.seen)
        old, new = keys_of(before.group), rows_of(after)
        for key in (*(key for key in old if key not in new), *self._drawn[row_id].drawn):
            self.change.delete(key)
        for key, row in new.items():
            if row or key not in old:
                self.change.write(key, row, self._bodies.get(key.id) if row else None)
        self.written[row_id] = GroupRow(after, value)

    def _announce(self) -> None:
        """Wake waiting consumers when messages are first in their group now, and report late messages."""
        late: dict[int, CursorPosition] = {}
        since = self._clock() - LATE
        for row_id, row in self.written.items():
            group = row.group
            if group.held or set(keys_of(group)) <= set(keys_of(self._before[row_id].group)):
                continue
            of_process.get().announce((parted(self._shard.queue)[0],))
            first = group.members[0].slice
            place = group.ready_at, first.bundle_id, first.first
            if group.ready_at < since:
                late[first.priority] = min(place, late.get(first.priority, place))
        if late:
            with suppress(ShardqError):  # a deep probe finds what is hidden
                lower(self._session, self._shard, late)


class _LeaseRows:
    """The lease rows that a change of groups touches, as they are and as they are to be.

    Each change of a group's held messages writes its lease row, on the condition that this is as it was seen. So it
    names the groups that are held under it, and goes with the last one. Groups that get another end of their lease
    than the rest move to another lease row, under another number.
    """

    def __init__(self, row: WideRow, seen: Iterable[LeaseRow]) -> None:
        self._row = row
        self._seen: dict[Key, LeaseRow | None] = {each.key: each for each in seen}

    @property
    def known(self) -> list[LeaseRow]:
        """Those that there are, as far as is known."""
        return [each for each in self._seen.values() if each is not None]

    def expect_none(self, key: Key) -> None:
        """Expect that there is no such row: this is a condition of the change."""
        self._seen.setdefault(key, None)

    def write(
        self, change: Change, before: Mapping[bytes, Group], after: Mapping[bytes, Group]
    ) -> dict[bytes, Group]:
        """Let the lease rows follow the groups whose hold changes; returns the groups with their numbers."""
        moved = {row_id: group for row_id, group in after.items() if group.hold != before[row_id].hold}
        groups = [*moved.values(), *(before[row_id] for row_id in moved)]
        keys = sorted({group.lease_key for group in groups if group.held})
        self._read(keys)
        numbered = dict(after)
        for key in keys:
            for row_id, number in self._renew(change, key, moved):
                numbered[row_id] = msgspec.structs.replace(after[row_id], number=number)
        return numbered

    def _read(self, keys: Iterable[Key]) -> None:
        missing = [key for key in keys if key not in self._seen]
        if missing:
            self._seen |= dict.fromkeys(missing)
            found = self._row.leases(key.id for key in missing)
            self._seen |= {each.key: each for each in found if each.key in missing}

    def _renew(self, change: Change, key: Key, moved: Mapping[bytes, Group]) -> Iterator[tuple[bytes, int]]:
        """Write one lease row, and what splits off; returns the number of the lease row of each group that moved."""
        by_end: dict[int, dict[bytes, Slice]] = {}
        if seen := self._seen[key]:
            change.retire(seen)
            stay = {row_id: each for row_id, each in fronts_of(seen) if row_id not in moved}
            by_end = {seen.due: stay} if stay else {}
        for row_id, group in moved.items():
            if group.held and group.lease_key == key:
                by_end.setdefault(group.members[0].due, {})[row_id] = group.members[0].slice
        self._seen[key] = None
        number = key.first
        for end, fronts in by_end.items():
            lease = lease_of(key.id, number, end, fronts)
            change.hold(lease)
            self._seen[lease.key] = msgspec.structs.replace(lease, seen=lease.value)
            yield from ((row_id, number) for row_id in fronts if row_id in moved)
            number = int.from_bytes(os.urandom(4), "big") >> 1


class KnownGroups:
    """The groups and lease rows that this client wrote last, so that it can settle its messages without a read.

    Later changes by others show when a change of them is not applied.
    """

    def __init__(self) -> None:
        self._lock = OwnLock()
        self.known: dict[tuple[str, bytes], _Held] = {}

    def take(self, shard: str, tokens: set[bytes]) -> _Held | None:
        """Return what is under these tokens, and forget it; None when one of the tokens is not known."""
        with self._lock.plain:
            found = [self.known.pop((shard, token), None) for token in tokens]
        groups: dict[bytes, GroupRow] = {}
        leases: dict[Key, LeaseRow] = {}
        for each in found:
            if each is None:
                return None
            groups |= each[0]
            leases |= each[1]
        return groups, leases

    def put(self, shard: str, rows: Mapping[bytes, GroupRow], leases: Iterable[LeaseRow]) -> None:
        """Note that these groups and lease rows were just read or written so."""
        with self._lock.plain:
            for row_id, row in rows.items():
                if row.group.held:
                    self.known.setdefault((shard, row.group.token), ({}, {}))[0][row_id] = row
            for lease in leases:
                if (shard, lease.id) in self.known:
                    self.known[shard, lease.id][1][lease.key] = lease
            while len(self.known) > _MOST:
                self.known.pop(next(iter(self.known)))
