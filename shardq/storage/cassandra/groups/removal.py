"""Removing messages of groups whatever their state: one, or a shard's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shardq.base.shard import Shard
from shardq.storage.cassandra import finishing
from shardq.storage.cassandra.changing import attempts
from shardq.storage.cassandra.groups.changing import Draft, Moment
from shardq.storage.cassandra.groups.reading import GroupReader, GroupRow, Overtaken
from shardq.storage.cassandra.groups.rows import Member, group_id
from shardq.storage.cassandra.removal import around
from shardq.storage.cassandra.rows import BundleRow, id_time
from shardq.storage.cassandra.session import Session
from shardq.storage.slicing import gaps
from shardq.storage.writing import after_a_write

__all__ = ["purge", "remove"]

_ROWS = 300  # behind a window, that one step of a purge takes


def remove(session: Session, shard: Shard, bundle_id: bytes, position: int, now: Moment) -> bool:
    """Remove one message, out of the history too; False when it is not stored."""
    reader = GroupReader(session, shard)
    with session.lock(str(shard)):
        for _ in attempts(shard):
            try:
                draft, certain = reader.row.undisturbed(
                    lambda: _removal(session, shard, reader, bundle_id, position, now)
                )
            except Overtaken:
                continue
            if draft is None and certain:
                return False
            if draft is not None and draft.apply():
                break
    return True


def _removal(
    session: Session, shard: Shard, reader: GroupReader, bundle_id: bytes, position: int, now: Moment
) -> Draft | None:
    """Find the message and return the change that removes it, or None."""
    bundle = reader.row.heads([bundle_id]).get(bundle_id)
    if bundle is None:
        return None
    row_id = group_id(bundle.head.group)
    rows = reader.groups([row_id])
    draft = Draft(session, shard, rows, now)
    for kept in bundle.tally.kept:
        if kept.first <= position < kept.end:
            finishing.give_up(draft.change, bundle, [kept], around(kept, position))
            return draft
    if row_id in rows and (found := _take_out(draft, reader, rows[row_id], bundle, position)):
        finishing.finish(draft.change, reader.row, [found.slice])
        return draft
    return None


def _take_out(
    draft: Draft, reader: GroupReader, row: GroupRow, bundle: BundleRow, position: int
) -> Member | None:
    """Take a message out of its group; returns it, or None when it is not there."""
    group, row_id = row.group, group_id(row.group.name)
    for number, each in enumerate(group.members):
        if each.slice.bundle_id == bundle.id and each.slice.first <= position < each.slice.end:
            rest = list(_without(each, position))
            held = group.held + (len(rest) - 1) * (number < group.held)
            members = [*group.members[:number], *rest, *group.members[number + 1 :]]
            draft.set(row_id, members, held)
            return each.part(position, position + 1)
    parts = reader.settled_behind(row, bundle.head.place)
    for each in parts:
        if each.slice.first <= position < each.slice.end:
            others = [one for one in parts if one is not each]
            left = sorted([*others, *_without(each, position)], key=lambda one: one.place)
            draft.remove_behind(row_id, bundle.head.place, [one.slice for one in left])
            return each.part(position, position + 1)
    return None


def _without(each: Member, position: int) -> Iterator[Member]:
    whole = (each.slice.first, each.slice.end)
    return (each.part(*part) for part in gaps(whole, [(position, position + 1)]))


def purge(session: Session, shard: Shard, until: int, now: Callable[[], int]) -> int:
    """Remove messages that were sent until a moment and wait or are held, group by group; returns how many.

    Messages that are sent later stay, so it ends although producers are at work.
    """
    purging = _Purge(session, shard, until, now)
    with session.lock(str(shard)), after_a_write(lambda: purging.messages):
        return purging.run()


class _Purge:
    def __init__(self, session: Session, shard: Shard, until: int, now: Moment) -> None:
        self._session, self._shard, self._until, self._now = session, shard, until, now
        self._reader = GroupReader(session, shard)
        self.messages = 0

    def run(self) -> int:
        """Purge group by group.

        Each group has one row, which stays in its place, so one read of all of them finds the messages.
        """
        for row in self._reader.from_group(b""):
            self._purge_group(group_id(row.group.name))
        return self.messages

    def _purge_group(self, row_id: bytes) -> None:
        tries = attempts(self._shard)
        while row := self._reader.groups([row_id]).get(row_id):
            draft = Draft(self._session, self._shard, {row_id: row}, self._now)
            try:
                removed = self._remove_old(draft, row_id, row)
            except Overtaken:
                next(tries)
                continue
            if not removed:
                return
            if draft.apply():
                self.messages += removed
                tries = attempts(self._shard)
            else:
                next(tries)

    def _remove_old(self, draft: Draft, row_id: bytes, row: GroupRow) -> int:
        """Leave out what is old of a group's window, and of some rows behind; returns how many messages."""
        if row.group.behind:
            draft.fill(row_id, _ROWS)
        group = draft.group(row_id)
        old = [each for each in group.members if self._is_old(each)]
        stays = [each for each in group.members if not self._is_old(each)]
        if old:
            finishing.finish(draft.change, self._reader.row, [each.slice for each in old])
            held = sum(not self._is_old(each) for each in group.members[: group.held])
            draft.set(row_id, stays, held)
        return sum(each.slice.count for each in old)

    def _is_old(self, each: Member) -> bool:
        return id_time(each.slice.bundle_id) <= self._until
