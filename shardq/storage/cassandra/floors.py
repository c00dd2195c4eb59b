"""The floors of a shard: low watermarks in its control row, from which everybody reads.

They are hints. A floor is raised with what was taken, to 5 s ago at most (that of the alarms: 60 s), and nobody
believes one that is higher, whatever clock has written it. What lies below a floor all the same is found by a deep
look, which lowers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shardq.storage.cassandra.rows import ALARM_FLOOR, HISTORY_FLOOR, Control, ControlRow, Place

__all__ = ["GUARD", "believed", "lowered", "raised", "with_history_floor", "worth_raising"]

GUARD = 5_000_000
"""A floor is so long before the present, in microseconds: what is stored later after its due time says so."""

_ALARM_GUARD = 60_000_000  # far above the time that a conditional batch may be on its way
_STEP = 5_000_000  # floors are raised in such steps
_ROWS = 500  # or when so many rows were taken


def believed(control: Control, now: int) -> Control:
    """Return the control row with floors that a right clock can have raised until now."""
    places = [min(place, (now - GUARD, b"", 0)) for place in control.places]
    return _with(control, places, min(control.floors[ALARM_FLOOR], now - _ALARM_GUARD))


def raised(control: Control, places: Sequence[Place], alarm: int, now: int, taken: int = 0) -> Control | None:
    """Raise the floors to these places; None where that is not worth a write.

    It is worth one when a floor rises by a step, or ``taken`` rows became tombstones that it passes.
    """
    known = believed(control, now)
    higher = [max(pair) for pair in zip(known.places, places, strict=True)]
    after = believed(_with(control, higher, max(known.floors[ALARM_FLOOR], alarm)), now)
    stepped = any(new >= old + _STEP for new, old in zip(after.floors, known.floors, strict=True))
    return after if stepped or (taken >= _ROWS and after.places > known.places) else None


def worth_raising(row: ControlRow, first_alarm: int, now: int) -> Control | None:
    """Return the control row to write for a shard that has nothing ready, or None when that spares nobody anything.

    It spares reading tombstones where something was taken after the moments of the floors.
    """
    floors = row.control.floors
    ready = min(floors[:ALARM_FLOOR]) <= row.taken_at < now - GUARD
    alarms = floors[ALARM_FLOOR] <= row.taken_at < now - _ALARM_GUARD
    if not row.taken_at or not (ready or alarms):
        return None
    return raised(row.control, [(now, b"", 0)] * ALARM_FLOOR, first_alarm, now)


def lowered(control: Control, hidden: Mapping[int, Place], alarm: int | None = None) -> Control:
    """Lower the floors to these places by priority, and to this alarm, and let every client begin there again."""
    places = [min(place, hidden.get(priority, place)) for priority, place in enumerate(control.places)]
    floor = control.floors[ALARM_FLOOR]
    after = _with(control, places, floor if alarm is None else min(floor, alarm))
    return msgspec.structs.replace(after, late=control.late + 1)


def with_history_floor(control: Control, floor: int) -> Control:
    """Return the control row with the history's floor raised to a moment."""
    floors = list(control.floors)
    floors[HISTORY_FLOOR] = max(floors[HISTORY_FLOOR], floor)
    return msgspec.structs.replace(control, floors=tuple(floors))


def _with(control: Control, places: Sequence[Place], alarm: int) -> Control:
    floors = (*(place[0] for place in places), alarm, *control.floors[HISTORY_FLOOR:])
    return Control(floors, control.late, tuple(place[1:] for place in places))
