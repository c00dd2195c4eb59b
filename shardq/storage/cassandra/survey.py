"""One look at some shards, without a body being read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from shardq.errors import ShardqError
from shardq.sharding.shard import Shard
from shardq.storage.cassandra import floors
from shardq.storage.cassandra.change import Change
from shardq.storage.cassandra.joint import ask_alarms, ask_controls, ask_delayed, ask_ready
from shardq.storage.cassandra.reading import PRIORITIES, WideRow, control_row
from shardq.storage.cassandra.rows import ALARM_FLOOR, Control, ControlRow, Holding, Place
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.sight import Sights
from shardq.storage.requests import Probe

__all__ = ["SOON", "Found", "Survey"]

SOON = 100_000  # clocks agree within this; what is due so soon is told as what lies ahead
_AHEAD = 60_000_000  # a lease that ends later is not looked for: the alarms of leases that were not used up lie there
_READY = 4  # ready rows of a shard that are read
_ALARMS = 20  # of a shard; so many lapsed holdings are looked at
_STEP = 1_000_000  # starts so close together are read as one

_Offer: TypeAlias = tuple[int, int]  # priority, due


class Found(msgspec.Struct):
    """What was read of one shard."""

    control: ControlRow = ControlRow()
    floors: Control = Control()  # those that are believed
    ready: list[tuple[int, Place]] = msgspec.field(default_factory=list)  # with their priorities
    alarms: list[tuple[int, bytes, int]] = msgspec.field(default_factory=list)  # due, id, number
    delayed: list[int] = msgspec.field(default_factory=list)
    holdings: list[Holding] = msgspec.field(default_factory=list)  # that were read


class Survey:
    """A full look from the floors, or a glance from where nothing was found before."""

    def __init__(
        self, session: Session, sights: Sights, shards: Sequence[Shard], now: int, *, glance: bool = False
    ) -> None:
        self._session, self._sights, self._now, self._glance = session, sights, now, glance
        self._shards = {str(shard): shard for shard in shards}
        self._found = {name: Found() for name in self._shards}
        self._names = list(self._shards)
        self._controls: Answer | None = None
        self._ready: list[Answer] = []
        self._alarms: Answer | None = None
        self._delayed: Answer | None = None

    def ask_controls(self) -> None:
        """The floors have to be known before anything is read from there."""
        if not self._glance:
            self._controls = ask_controls(self._session, self._names)

    def ask(self) -> None:
        """Ask for everything else."""
        self._learn_floors()
        until = self._now + SOON
        for start, priorities in self._starts():
            self._ready.append(ask_ready(self._session, self._names, priorities, start, until, _READY))
        if not self._glance:
            floor = min(found.floors.floors[ALARM_FLOOR] for found in self._found.values())
            self._alarms = ask_alarms(self._session, self._names, floor, self._now + _AHEAD, _ALARMS)
            self._delayed = ask_delayed(self._session, self._names, self._now)

    def collect(self) -> None:
        """Wait for the answers. The requests began at the lowest floor of all the shards."""
        for name, priority, *place in (row for answer in self._ready for row in answer()):
            if self._glance or tuple(place) >= self._found[name].floors.places[priority]:
                self._found[name].ready.append((priority, tuple(place)))
        for name, _, due, row_id, number in self._alarms() if self._alarms else ():
            if due >= self._found[name].floors.floors[ALARM_FLOOR]:
                self._found[name].alarms.append((due, row_id, number))
        self._collect_delayed()
        for name, found in self._found.items():
            if not self._glance and not found.ready:
                self._nothing_ready(name, found)

    def probes(self) -> Iterator[Probe]:
        """What was found, shard by shard."""
        for name, shard in self._shards.items():
            found = self._found[name]
            offers = [(priority, place[0]) for priority, place in found.ready]
            offers += self._lapsed(name, found)
            ahead = [due for _, due in offers if due > self._now]
            ahead += [due for due, _, _ in found.alarms if due > self._now] + found.delayed
            first = min((offer for offer in offers if offer[1] <= self._now), default=(None, None))
            yield Probe(shard, first[0], first[1], min(ahead, default=None))

    def _learn_floors(self) -> None:
        for name, *row in self._controls() if self._controls else ():
            self._found[name].control = control_row(*row)
        for name, found in self._found.items():
            found.floors = floors.believed(found.control.control, self._now)
            if not self._glance:
                self._sights.of(name).floors = found.floors.places

    def _starts(self) -> Iterable[tuple[int, list[int]]]:
        """Where to read from, with the priorities that are read from there: the earliest place of any of the shards."""
        starts = [
            self._sights.of(name).starts() if self._glance else found.floors.places
            for name, found in self._found.items()
        ]
        groups: dict[int, tuple[int, list[int]]] = {}
        for priority in PRIORITIES:
            start = min(each[priority] for each in starts)[0]
            least, members = groups.get(start // _STEP, (start, []))
            groups[start // _STEP] = min(least, start), [*members, priority]
        return groups.values()

    def _collect_delayed(self) -> None:
        for name, _, due, *_ in self._delayed() if self._delayed else ():
            self._found[name].delayed.append(due)

    def _lapsed(self, name: str, found: Found) -> Iterator[_Offer]:
        lapsed = [row_id for due, row_id, _ in found.alarms if due <= self._now][:_ALARMS]
        holdings = WideRow(self._session, name).holdings(lapsed) if lapsed else []
        for holding in (*holdings, *found.holdings):
            if holding.due <= self._now:
                yield from ((each.priority, holding.due_of(each)) for each in holding.slices)

    def _nothing_ready(self, name: str, found: Found) -> None:
        self._sights.of(name).quiet_at = self._now
        first_alarm = min((due for due, _, _ in found.alarms), default=self._now)
        raised = floors.worth_raising(found.control, first_alarm, self._now)
        if raised is None:
            return
        change = Change(self._session, self._shards[name])
        change.set_control(raised, found.control.seen)
        with suppress(ShardqError):  # it only would have spared others some reading
            change.apply()
