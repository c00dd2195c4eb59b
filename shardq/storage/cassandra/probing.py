"""What shards have to offer, without a body being read: a few requests for fifty shards together.

A full look reads from the floors of each shard; a glance reads the ready rows from where the last full look or claim
found nothing any more. A full look that finds a shard used up also raises its floors, so that whoever looks
next keeps off the tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from shardq.errors import ShardqError
from shardq.sharding.shard import Shard
from shardq.storage.cassandra.change import Change
from shardq.storage.cassandra.reading import PRIORITIES, WideRow, control_row
from shardq.storage.cassandra.rows import ALARM_FLOOR, ControlRow
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.sight import Sights, worth_raising
from shardq.storage.requests import Probe

__all__ = ["probe"]

_SOON = 100_000  # clocks agree within this; what is due so soon is told as what lies ahead
_AHEAD = 60_000_000  # a lease that ends later is not looked for: the alarms of leases that were not used up lie there
_AT_ONCE = 50  # shards of one request
_LIMIT = 20  # lapsed holdings of a shard
_STEP = 1_000_000  # starts so close together are read as one

_CONTROL = (
    "SELECT shard, value, taken, WRITETIME(taken), turn, WRITETIME(turn) FROM entry "
    "WHERE shard IN ? AND kind = 0 AND priority = 0 AND due = 0 AND id = 0x AND first = 0"
)
_READY = (
    "SELECT shard, priority, due FROM entry WHERE shard IN ? AND kind = 2 AND priority IN ? "
    "AND due >= ? AND due <= ? PER PARTITION LIMIT 4"
)
_ALARMS = (
    "SELECT shard, id, due FROM entry WHERE shard IN ? AND kind = 5 AND priority = 0 "
    f"AND due >= ? AND due <= ? PER PARTITION LIMIT {_LIMIT}"
)
_DELAYED = (
    "SELECT shard, due FROM entry WHERE shard IN ? AND kind = 5 AND priority = 1 AND due > ? "
    "PER PARTITION LIMIT 1"
)

_Offer: TypeAlias = tuple[int, int]  # priority, due


class _Found(msgspec.Struct):
    """What was read of one shard."""

    control: ControlRow = ControlRow()
    ready: list[_Offer] = msgspec.field(default_factory=list)
    alarms: list[tuple[bytes, int]] = msgspec.field(default_factory=list)
    delayed: list[int] = msgspec.field(default_factory=list)


def probe(
    session: Session, sights: Sights, shards: Sequence[Shard], now: int, *, glance: bool
) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order; with ``glance`` only what is ready and unclaimed."""
    chunks = [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]
    looks = [_Look(session, sights, chunk, now, glance=glance) for chunk in chunks]
    for step in (_Look.ask_controls, _Look.ask, _Look.collect):
        for look in looks:
            step(look)
    return tuple(each for look in looks for each in look.probes())


class _Look:
    """One look at some shards."""

    def __init__(
        self, session: Session, sights: Sights, shards: Sequence[Shard], now: int, *, glance: bool
    ) -> None:
        self._session, self._sights, self._now, self._glance = session, sights, now, glance
        self._shards = {str(shard): shard for shard in shards}
        self._found = {name: _Found() for name in self._shards}
        self._names = list(self._shards)
        self._controls: Answer | None = None
        self._ready: list[Answer] = []
        self._alarms: Answer | None = None
        self._delayed: Answer | None = None

    def ask_controls(self) -> None:
        """The floors have to be known before anything is read from there."""
        if not self._glance:
            self._controls = self._session.start_read(_CONTROL, (self._names,))

    def ask(self) -> None:
        """Ask for everything else."""
        for name, *row in self._controls() if self._controls else ():
            self._found[name].control = control_row(*row)
            self._sights.of(name).floors = self._found[name].control.control.floors
        names, now = self._names, self._now
        for start, priorities in self._starts():
            self._ready.append(self._session.start_read(_READY, (names, priorities, start, now + _SOON)))
        if not self._glance:
            floor = min(self._sights.of(name).floors[ALARM_FLOOR] for name in names)
            self._alarms = self._session.start_read(_ALARMS, (names, floor, now + _AHEAD))
            self._delayed = self._session.start_read(_DELAYED, (names, now))

    def collect(self) -> None:
        """Wait for the answers."""
        for name, priority, due in (row for answer in self._ready for row in answer()):
            if (
                due >= self._sights.of(name).floors[priority]
            ):  # the request began at the lowest floor of all shards
                self._found[name].ready.append((priority, due))
        for name, row_id, due in self._alarms() if self._alarms else ():
            if due >= self._sights.of(name).floors[ALARM_FLOOR]:
                self._found[name].alarms.append((row_id, due))
        for name, due in self._delayed() if self._delayed else ():
            self._found[name].delayed.append(due)
        for name, found in self._found.items():
            if not self._glance and not found.ready:
                self._nothing_ready(name, found)

    def probes(self) -> Iterator[Probe]:
        """What was found, shard by shard."""
        for name, shard in self._shards.items():
            found = self._found[name]
            offers = [*found.ready, *self._lapsed(name, found)]
            ahead = [due for _, due in offers if due > self._now]
            ahead += [due for _, due in found.alarms if due > self._now] + found.delayed
            first = min((offer for offer in offers if offer[1] <= self._now), default=(None, None))
            yield Probe(shard, first[0], first[1], min(ahead, default=None))

    def _starts(self) -> Iterable[tuple[int, list[int]]]:
        """Where to read from, with the priorities that are read from there: the earliest place of any of the shards."""
        sights = [self._sights.of(name) for name in self._names]
        starts = [sight.starts() if self._glance else sight.floors[:10] for sight in sights]
        groups: dict[int, tuple[int, list[int]]] = {}
        for priority in PRIORITIES:
            start = min(each[priority] for each in starts)
            least, members = groups.get(start // _STEP, (start, []))
            groups[start // _STEP] = min(least, start), [*members, priority]
        return groups.values()

    def _lapsed(self, name: str, found: _Found) -> Iterator[_Offer]:
        lapsed = [row_id for row_id, due in found.alarms if due <= self._now]
        for holding in WideRow(self._session, name).holdings(lapsed) if lapsed else ():
            if holding.due <= self._now:
                yield from ((each.priority, holding.due) for each in holding.slices)

    def _nothing_ready(self, name: str, found: _Found) -> None:
        self._sights.of(name).quiet_at = self._now
        first_alarm = min((due for _, due in found.alarms), default=self._now)
        raised = worth_raising(found.control, first_alarm, self._now)
        if raised is None:
            return
        change = Change(self._session, self._shards[name])
        change.set_control(raised, found.control.seen)
        try:
            change.apply()
        except ShardqError:  # it only would have spared others some reading
            return
