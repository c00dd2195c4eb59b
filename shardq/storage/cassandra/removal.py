"""Removing messages in any state: one, a shard's, a queue's; and expired history.

A sweep finishes drops, and puts hints right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice

import msgspec

from shardq.base.shard import Shard
from shardq.storage.cassandra import consumers, dedupe, directory, finishing, queues, read_cursors
from shardq.storage.cassandra.changing import Change, attempts
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.probe_reads import ask_history
from shardq.storage.cassandra.queues import name_of
from shardq.storage.cassandra.read_cursors import with_history_watermark
from shardq.storage.cassandra.rows import (
    DUE_WATERMARK,
    Control,
    ControlRow,
    CursorPosition,
    HistoryRow,
    Kept,
    Ready,
    Slice,
    id_time,
)
from shardq.storage.cassandra.scanning import FIRST, FOREVER
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.slicing import cut_out
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import QueueRecord, Sweep
from shardq.storage.writing import after_a_write

__all__ = ["around", "drop", "erase", "expire", "finish_drop", "purge", "remove", "sweep", "take_pending"]

_UNDER_WAY = 60_000_000  # far above the time that a conditional batch may be on its way
_ERASE = "DELETE FROM entry USING TIMESTAMP ? WHERE shard = ?"
_AHEAD = 3_600_000_000
_FOREVER = 2**62

_READY_AT_ONCE = 300
_LEASES_AT_ONCE = 30


def remove(session: Session, shard: Shard, bundle_id: bytes, position: int) -> bool:
    """Remove one message, out of the history too; False when it is not stored."""
    row = WideRow(session, str(shard))
    with session.lock(str(shard)):
        for _ in attempts(shard):
            change, certain = row.undisturbed(lambda: _removal(session, shard, row, bundle_id, position))
            if change is None and certain:
                return False
            if change is not None and change.apply():
                break
    return True


def expire(session: Session, shard: Shard, before: int, limit: int) -> int:
    """Give up to ``limit`` slices up that were processed before a moment; returns how many.

    The low watermark of the history follows, so that the next read skips the tombstones.
    """
    row = WideRow(session, str(shard))
    with session.lock(str(shard)):
        for _ in attempts(shard):
            control = row.control()
            old = list(islice(row.history((-1, b"", 0), before), limit))
            if not old:
                old = list(islice(row.history((-_FOREVER, b"", 0), before, above_watermark=False), limit))
            if not old:
                return 0
            change = Change(session, shard)
            _give_up(change, row, old)
            watermark = min(old[-1].kept.processed_at, before - _UNDER_WAY)
            change.set_control(with_history_watermark(control.control, watermark), control.seen)
            if change.apply():
                return len(old)
    return 0


def drop(session: Session, queue: str, now: Callable[[], int], seen: QueueRecord | None = None) -> bool:
    """Remove the queue with all that it holds; continues where a crashed attempt stopped. False when there is none."""
    incarnation = queues.condemn(session, queue, seen)
    if incarnation is None:
        return False
    with after_a_write():  # the queue exists no longer
        finish_drop(session, queue, incarnation, now)
    return True


def finish_drop(session: Session, queue: str, incarnation: str, now: Callable[[], int]) -> None:
    """Remove all that is left of an incarnation that was condemned.

    Only this incarnation is touched, also when the queue is created again meanwhile.
    """
    time.sleep(directory.NOTICE)  # producers that saw the queue a moment ago do not look again before
    name = name_of(queue, incarnation)
    for shard in directory.ever_listed(session, name):
        erase(session, str(shard), now())
    written = now() + _AHEAD
    directory.drop(session, name, written)
    dedupe.drop(session, name, written)
    consumers.drop(session, name, written)
    queues.remove(session, queue, incarnation)


def erase(session: Session, partition: str, now: int) -> None:
    """Delete all of a shard whose incarnation has ended, without a read.

    The delete is dated an hour ahead, so it also deletes what clients write there that have not noticed yet.
    """
    session.write([(_ERASE, (now + _AHEAD, partition))])


def _removal(session: Session, shard: Shard, row: WideRow, bundle_id: bytes, position: int) -> Change | None:
    """Find the message and return the change that removes it, or None."""
    change = Change(session, shard)
    taken = row.settled_control().taken
    bundle = row.heads([bundle_id]).get(bundle_id)
    waiting = row.ready_of(bundle.id, bundle.head) if bundle else row.inline_ready(bundle_id)
    for ready in waiting:
        if ready.key.first <= position < ready.key.first + ready.count:
            change.take([ready], taken)
            _remove_ready(change, row, ready, position)
            return change
    for kept in bundle.tally.kept if bundle else ():
        if bundle and kept.first <= position < kept.end:
            finishing.give_up(change, bundle, [kept], around(kept, position))
            return change
    for lease in row.every_lease():
        cut = cut_out(lease, bundle_id, position)
        if cut.named:
            change.retire(lease)
            if cut.rest:
                change.hold(msgspec.structs.replace(lease, slices=cut.rest))
            finishing.finish(change, row, cut.named)
            return change
    return None


def take_pending(change: Change, row: WideRow, bundle_id: bytes, position: int, now: int) -> Slice | None:
    """Let a change remove a message that nobody holds now; returns it, or None if it is held or not stored."""
    taken = row.settled_control().taken
    bundle = row.heads([bundle_id]).get(bundle_id)
    for ready in row.ready_of(bundle.id, bundle.head) if bundle else row.inline_ready(bundle_id):
        if ready.key.first <= position < ready.key.first + ready.count:
            change.take([ready], taken)
            _remove_ready(change, row, ready, position)
            return ready.slice.part(position, position + 1)
    for lease in row.every_lease():
        cut = None if lease.held and lease.due > now else cut_out(lease, bundle_id, position)
        if cut is not None and cut.named:
            change.retire(lease)
            if cut.rest:
                change.hold(msgspec.structs.replace(lease, slices=cut.rest))
            finishing.finish(change, row, cut.named)
            return cut.named[0]
    return None


def _remove_ready(change: Change, row: WideRow, ready: Ready, position: int) -> None:
    end = ready.key.first + ready.count
    for first, stop in ((ready.key.first, position), (position + 1, end)):
        if first < stop:
            change.offer(ready.part(first, stop))
    finishing.finish_ready(change, row, [ready], [ready.slice.part(position, position + 1)])


def _give_up(change: Change, row: WideRow, old: Sequence[HistoryRow]) -> None:
    by_bundle = sorted(old, key=lambda each: each.key.id)
    heads = row.heads(each.key.id for each in old)
    for bundle_id, members in groupby(by_bundle, key=lambda each: each.key.id):
        if bundle_id in heads:
            finishing.give_up(change, heads[bundle_id], [each.kept for each in members])


def around(kept: Kept, position: int) -> list[Kept]:
    """Return the rest of kept messages when one is removed."""
    parts = ((kept.first, position), (position + 1, kept.end))
    return [
        Kept(kept.processed_at, first, end - first, kept.deliveries) for first, end in parts if first < end
    ]


def purge(session: Session, shard: Shard, until: int, now: Callable[[], int]) -> int:
    """Remove messages that were sent until a moment and wait or are held, some hundred rows at a time.

    Returns how many. Messages that are sent later stay, so it ends although producers are at work. It continues from
    where it has deleted, and so do the low watermarks, so that its tombstones are not read again.
    """
    purging = _Purge(session, shard, until, now)
    with session.lock(str(shard)), after_a_write(lambda: purging.messages):
        return purging.run()


class _Purge:
    def __init__(self, session: Session, shard: Shard, until: int, now: Callable[[], int]) -> None:
        self._session, self._shard, self._until, self._now = session, shard, until, now
        self._row = WideRow(session, str(shard))
        self.messages = 0

    def run(self) -> int:
        for _ in attempts(self._shard):
            for priority in PRIORITIES:
                self._purge_ready(priority)
            self._purge_leases()
            if self._row.undisturbed(self._is_done) == (True, True):
                break
        return self.messages

    def _purge_ready(self, priority: int) -> None:
        place: CursorPosition = (-FOREVER, b"", FIRST)
        stays: CursorPosition = (FOREVER, b"", FIRST)  # the first row that is not to be removed
        rows = 0
        tries = attempts(self._shard)
        while True:
            control = self._row.settled_control()
            some = list(
                islice(self._row.ready([priority], place, FOREVER, page=_READY_AT_ONCE)(), _READY_AT_ONCE)
            )
            old = [each for each in some if self._is_old(each.slice)]
            if not some:
                return
            kept = [each.key[2:] for each in some if not self._is_old(each.slice)]
            stays = min([stays, *kept])
            after = (*some[-1].key[2:4], some[-1].key.first + 1)
            raised = self._raised(control, priority, min(after, stays), rows + len(old))
            if not old or self._remove(control, raised, old, ()):
                place, rows = after, 0 if raised and old else rows + len(old)
                tries = attempts(self._shard)
            else:
                next(tries)

    def _purge_leases(self) -> None:
        since = b""
        tries = attempts(self._shard)
        while some := list(islice(self._old_leases(since), _LEASES_AT_ONCE)):
            if self._remove(None, None, (), some):
                since = some[-1].id
                tries = attempts(self._shard)
            else:
                next(tries)

    def _remove(
        self,
        control: ControlRow | None,
        raised: Control | None,
        ready: Sequence[Ready],
        leases: Sequence[LeaseRow],
    ) -> bool:
        change = Change(self._session, self._shard)
        if control is not None:
            change.take(ready, control.taken)
        if control is not None and raised is not None:
            change.set_control(raised, control.seen)
        for lease in leases:
            change.retire(lease)
        slices = [each.slice for each in ready] + [each for lease in leases for each in lease.slices]
        finishing.finish_ready(change, self._row, ready, slices)
        if not change.apply():
            return False
        self.messages += sum(each.count for each in slices)
        return True

    def _raised(self, control: ControlRow, priority: int, place: CursorPosition, rows: int) -> Control | None:
        places = list(control.control.places)
        places[priority] = max(places[priority], place)
        due_row = control.control.watermarks[DUE_WATERMARK]
        return read_cursors.raised(control.control, places, due_row, self._now(), rows)

    def _is_done(self) -> bool:
        """Return whether nothing is left above the low watermarks, which are no higher than this purge has reached."""
        ready = (each for each in self._row.all_ready(self._now()) if self._is_old(each.slice))
        return next(ready, None) is None and next(self._old_leases(b""), None) is None

    def _old_leases(self, since: bytes) -> Iterator[LeaseRow]:
        leases = self._row.every_lease(since, page=_LEASES_AT_ONCE)
        return (each for each in leases if any(self._is_old(part) for part in each.slices))

    def _is_old(self, each: Slice) -> bool:
        return id_time(each.bundle_id) <= self._until


_LIMIT = 200
_AT_ONCE = 50


def sweep(
    session: Session, request: Sweep, now: Callable[[], int], probe: Callable[[Sequence[Shard]], object]
) -> int:
    """Give up history, up to 200 slices of each shard, and finish drops; returns how much.

    It reads every shard that may hold anything, listed or not. Keys and consumers expire automatically. Drops that
    stopped half way are finished, of any queue, as its name may never be used again.
    """
    incarnation, given_up = queues.current(session, request.queue), 0
    shards = (
        () if incarnation is None else directory.ever_listed(session, name_of(request.queue, incarnation))
    )
    for first in range(0, len(shards), _AT_ONCE):
        chunk = shards[first : first + _AT_ONCE]
        probe(chunk)
        old = {shard for shard, _ in ask_history(session, list(map(str, chunk)), request.history_before)()}
        expired = (shard for shard in chunk if str(shard) in old)
        given_up += sum(expire(session, shard, request.history_before, _LIMIT) for shard in expired)
    return given_up + _finish_drops(session, now)


def _finish_drops(session: Session, now: Callable[[], int]) -> int:
    """Finish the drops of queues that stopped half way, or are under way; returns how many."""
    states = queues.states(session)
    dropped = [(queue, incarnation) for queue, (incarnation, is_condemned) in states.items() if is_condemned]
    for queue, incarnation in dropped:
        finish_drop(session, queue, incarnation, now)
    return len(dropped)
