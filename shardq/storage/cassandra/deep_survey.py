"""A look at some shards that goes by no floor, cursor or alarm, and puts right what hid something.

It reads the ready rows and the holdings of each shard from the beginning. So it crosses everything that was consumed
since the storage last cleaned up. While a shard is quiet it takes as many requests as a full look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from shardq.errors import ShardqError
from shardq.storage.cassandra.change import Change
from shardq.storage.cassandra.floors import lowered
from shardq.storage.cassandra.joint import ask_delayed, ask_held, ask_ready
from shardq.storage.cassandra.lowering import lower
from shardq.storage.cassandra.reading import PRIORITIES, WideRow
from shardq.storage.cassandra.rows import ALARM, ALARM_FLOOR, Holding, Place
from shardq.storage.cassandra.scanning import FOREVER
from shardq.storage.cassandra.survey import SOON, Found, Survey

__all__ = ["DeepSurvey"]

_READY = 20  # ready rows of a shard that are read at once


class DeepSurvey(Survey):
    """A look behind everything that makes other looks cheap."""

    def ask(self) -> None:
        """Ask for the rows of each shard from its beginning."""
        self._learn_floors()
        self._first_ready = self._ask_ready(self._names, PRIORITIES)
        self._held = ask_held(self._session, self._names)
        self._delayed = ask_delayed(self._session, self._names, self._now)

    def collect(self) -> None:
        """Wait for the answers, and put the hints right."""
        for name, priority, place in self._each_ready():
            self._found[name].ready.append((priority, place))
        holdings: dict[str, set[tuple[bytes, int]]] = {}
        for name, kind, due, row_id, number in self._held():
            if kind == ALARM:
                self._found[name].alarms.append((due, row_id, number))
            else:
                holdings.setdefault(name, set()).add((row_id, number))
        self._collect_delayed()
        for name, found in self._found.items():
            self._look_behind_alarms(name, found, holdings.get(name, set()))
            self._put_right(name, found)
            if not found.ready:
                self._nothing_ready(name, found)

    def _ask_ready(self, names: list[str], priorities: tuple[int, ...]) -> Any:
        return ask_ready(self._session, names, priorities, -FOREVER, self._now + SOON, _READY)

    def _each_ready(self) -> Iterator[tuple[str, int, Place]]:
        """The first ready rows of each shard and priority: shards that have more are asked for the next priorities."""
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

    def _look_behind_alarms(self, name: str, found: Found, holdings: set[tuple[bytes, int]]) -> None:
        """Leave out alarms of what is not there any more, and read the holdings that have none."""
        found.alarms = [alarm for alarm in found.alarms if alarm[1:] in holdings]
        missing = holdings - {alarm[1:] for alarm in found.alarms}
        if missing:
            read = WideRow(self._session, name).holdings(row_id for row_id, _ in missing)
            found.holdings = [each for each in read if (each.id, each.number) in missing]

    def _put_right(self, name: str, found: Found) -> None:
        """Lower the floors to what lies below them, and write the alarms that are missing."""
        hidden: dict[int, Place] = {}
        for priority, place in found.ready:
            if place < found.floors.places[priority]:
                hidden[priority] = min(place, hidden.get(priority, place))
        moments = [due for due, _, _ in found.alarms] + [each.due for each in found.holdings]
        alarm = min((due for due in moments if due < found.floors.floors[ALARM_FLOOR]), default=None)
        with suppress(ShardqError):  # the next deep look tries again
            if hidden or alarm is not None:
                self._sights.of(name).begin_anew(lowered(found.floors, hidden).places)
                lower(self._session, self._shards[name], hidden, alarm)
            for holding in found.holdings:
                self._write_alarm(name, holding)

    def _write_alarm(self, name: str, holding: Holding) -> None:
        change = Change(self._session, self._shards[name])
        change.retire(holding)
        change.hold(holding)
        change.apply()
