"""Removing everything that waits or is held in a shard, whatever low watermarks and the due index say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from shardq.sharding.shard import Shard
from shardq.storage.cassandra import finishing, read_cursors
from shardq.storage.cassandra.changing import Change, attempts
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import (
    DUE_WATERMARK,
    PRIORITIES,
    Control,
    ControlRow,
    Place,
    Ready,
    Slice,
    id_time,
)
from shardq.storage.cassandra.scanning import FIRST, FOREVER
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow

__all__ = ["purge"]

_READY_AT_ONCE = 300
_LEASES_AT_ONCE = 30


def purge(session: Session, shard: Shard, until: int, now: Callable[[], int]) -> int:
    """Remove what was sent until a moment and waits or is held, some hundred rows at a time; returns how many messages.

    What is sent later stays, so it ends although producers are at work. It goes on from where it has deleted, and so do
    the low watermarks, so that nobody reads its tombstones again.
    """
    with session.turn(str(shard)):
        return _Purge(session, shard, until, now).run()


class _Purge:
    def __init__(self, session: Session, shard: Shard, until: int, now: Callable[[], int]) -> None:
        self._session, self._shard, self._until, self._now = session, shard, until, now
        self._row = WideRow(session, str(shard))
        self._messages = 0

    def run(self) -> int:
        for _ in attempts(self._shard):
            for priority in PRIORITIES:
                self._purge_ready(priority)
            self._purge_leases()
            if self._row.undisturbed(self._is_done) == (True, True):
                break
        return self._messages

    def _purge_ready(self, priority: int) -> None:
        place: Place = (-FOREVER, b"", FIRST)
        stays: Place = (FOREVER, b"", FIRST)  # the first row that is not to be removed
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
        self._messages += sum(each.count for each in slices)
        return True

    def _raised(self, control: ControlRow, priority: int, place: Place, rows: int) -> Control | None:
        places = list(control.control.places)
        places[priority] = max(places[priority], place)
        due_row = control.control.watermarks[DUE_WATERMARK]
        return read_cursors.raised(control.control, places, due_row, self._now(), rows)

    def _is_done(self) -> bool:
        """Tell whether nothing is left above the low watermarks, which are no higher than where this purge has been."""
        ready = (each for each in self._row.all_ready(self._now()) if self._is_old(each.slice))
        return next(ready, None) is None and next(self._old_leases(b""), None) is None

    def _old_leases(self, since: bytes) -> Iterator[LeaseRow]:
        leases = self._row.every_lease(since, page=_LEASES_AT_ONCE)
        return (each for each in leases if any(self._is_old(part) for part in each.slices))

    def _is_old(self, each: Slice) -> bool:
        return id_time(each.bundle_id) <= self._until
