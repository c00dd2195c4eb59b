"""The offers of shards, without a body being read: a few requests for fifty shards together, one for a glance.

A full probe reads from the low watermarks of each shard. A glance reads only the ready rows, from where the last full
probe or claim found nothing any more. A full probe that finds a shard used up raises its low watermarks, so that the
next probe crosses no tombstones. A deep probe ignores all of that, and puts right what is wrong with it.

A deep probe reads the ready rows and the lease rows of each shard from the beginning. So it crosses everything that was
consumed since the last clean-up of the storage. While a shard is quiet it takes as many requests as a full probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from shardq.base.shard import Shard
from shardq.errors import ShardqError
from shardq.storage.cassandra.changing import Change, lower
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.probe_reads import SOON, Found, ShardProbes, ask_delayed, ask_held, ask_ready
from shardq.storage.cassandra.read_cursors import ReadCursors, lowered
from shardq.storage.cassandra.rows import DUE_INDEX, DUE_WATERMARK, CursorPosition
from shardq.storage.cassandra.scanning import FOREVER
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import Probe

__all__ = ["DeepProbe", "probe"]

_AT_ONCE = 50  # shards of one request
_GLANCED_AT_ONCE = 200  # a glance begins where nothing was found a moment ago, so it crosses little

_READY = 20  # ready rows of a shard that are read at once


def probe(
    session: Session,
    cursors: ReadCursors,
    shards: Sequence[Shard],
    now: int,
    *,
    glance: bool,
    deep: bool = False,
) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order.

    With ``glance`` only what is ready and unclaimed, with ``deep`` whatever hides it.
    """
    size = _GLANCED_AT_ONCE if glance else _AT_ONCE
    chunks = [shards[start : start + size] for start in range(0, len(shards), size)]
    running = [
        DeepProbe(session, cursors, chunk, now)
        if deep
        else ShardProbes(session, cursors, chunk, now, glance=glance)
        for chunk in chunks
    ]
    for each in running:
        each.ask_controls()
    for each in running:
        each.ask()
    for each in running:
        each.collect()
    return tuple(found for each in running for found in each.probes())


class DeepProbe(ShardProbes):
    """A read that ignores read cursors, low watermarks and the due index, and puts right those that hid messages."""

    def ask(self) -> None:
        """Ask for the rows of each shard from its beginning."""
        self._learn_watermarks()
        self._first_ready = self._ask_ready(self._names, PRIORITIES)
        self._held = ask_held(self._session, self._names)
        self._delayed = ask_delayed(self._session, self._names, self._now)

    def collect(self) -> None:
        """Wait for the answers, and put the hints right."""
        for name, priority, place in self._each_ready():
            self._found[name].ready.append((priority, place))
        leases: dict[str, set[tuple[bytes, int]]] = {}
        for name, kind, due, row_id, number in self._held():
            if kind == DUE_INDEX:
                self._found[name].due_rows.append((due, row_id, number))
            else:
                leases.setdefault(name, set()).add((row_id, number))
        self._collect_delayed()
        for name, found in self._found.items():
            self._probe_behind_due_index(name, found, leases.get(name, set()))
            self._put_right(name, found)
            if not found.ready:
                self._nothing_ready(name, found)

    def _ask_ready(self, names: list[str], priorities: tuple[int, ...]) -> Any:
        return ask_ready(self._session, names, priorities, -FOREVER, self._now + SOON, _READY)

    def _each_ready(self) -> Iterator[tuple[str, int, CursorPosition]]:
        """Yield the first ready rows of each shard and priority; shards that have more read the next priorities."""
        answer = self._first_ready
        while True:
            last: dict[str, list[int]] = {}
            for name, priority, *place in answer():
                yield name, priority, tuple(place)
                last.setdefault(name, []).append(priority)
            fuller = {name: seen[-1] for name, seen in last.items() if len(seen) == _READY}
            rest = tuple(each for each in PRIORITIES if fuller and each > min(fuller.values()))
            if not rest:
                return
            answer = self._ask_ready(list(fuller), rest)

    def _probe_behind_due_index(self, name: str, found: Found, leases: set[tuple[bytes, int]]) -> None:
        """Leave out due rows of what is not there any more, and read the lease rows that have none."""
        found.due_rows = [due_row for due_row in found.due_rows if due_row[1:] in leases]
        missing = leases - {due_row[1:] for due_row in found.due_rows}
        if missing:
            read = WideRow(self._session, name).leases(row_id for row_id, _ in missing)
            found.leases = [each for each in read if (each.id, each.number) in missing]

    def _put_right(self, name: str, found: Found) -> None:
        """Lower the low watermarks to what lies below them, and write the due rows that are missing."""
        hidden: dict[int, CursorPosition] = {}
        for priority, place in found.ready:
            if place < found.watermarks.places[priority]:
                hidden[priority] = min(place, hidden.get(priority, place))
        moments = [due for due, _, _ in found.due_rows] + [each.due for each in found.leases]
        earliest = min(
            (due for due in moments if due < found.watermarks.watermarks[DUE_WATERMARK]), default=None
        )
        with suppress(ShardqError):  # the next deep probe tries again
            if hidden or earliest is not None:
                self._cursors.of(name).begin_anew(lowered(found.watermarks, hidden).places)
                lower(self._session, self._shards[name], hidden, earliest)
            for lease in found.leases:
                self._write_due_row(name, lease)

    def _write_due_row(self, name: str, lease: LeaseRow) -> None:
        change = Change(self._session, self._shards[name])
        change.retire(lease)
        change.hold(lease)
        change.apply()
