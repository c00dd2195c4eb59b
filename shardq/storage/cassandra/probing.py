"""What shards have to offer, without a body being read: a few requests for fifty shards together.

A full look reads from the floors of each shard; a glance reads the ready rows from where the last full look or claim
found nothing any more. A full look that finds a shard used up also raises its floors, so that whoever looks
next keeps off the tombstones. A deep look goes by none of that, and puts it right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from shardq.errors import ShardqError
from shardq.sharding.shard import Shard
from shardq.storage.cassandra.changing import Change, lower
from shardq.storage.cassandra.lease_rows import Holding
from shardq.storage.cassandra.looks import SOON, Found, Survey, ask_delayed, ask_held, ask_ready
from shardq.storage.cassandra.read_cursors import Sights, lowered
from shardq.storage.cassandra.rows import ALARM, ALARM_FLOOR, PRIORITIES, Place
from shardq.storage.cassandra.scanning import FOREVER
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.requests import Probe

__all__ = ["DeepSurvey", "probe"]

_AT_ONCE = 50  # shards of one request

_READY = 20  # ready rows of a shard that are read at once


def probe(
    session: Session, sights: Sights, shards: Sequence[Shard], now: int, *, glance: bool, deep: bool = False
) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order.

    With ``glance`` only what is ready and unclaimed, with ``deep`` whatever hides it.
    """
    chunks = [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]
    surveys = [
        DeepSurvey(session, sights, chunk, now)
        if deep
        else Survey(session, sights, chunk, now, glance=glance)
        for chunk in chunks
    ]
    for survey in surveys:
        survey.ask_controls()
    for survey in surveys:
        survey.ask()
    for survey in surveys:
        survey.collect()
    return tuple(found for survey in surveys for found in survey.probes())


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
