"""Where a shard is read from, so that reads cross no tombstones: low watermarks and read cursors.

The low watermarks of a shard are in its control row, for all clients. A read cursor is the knowledge of one client
beyond them: up to where it has consumed the shard. Both are hints. A low watermark is raised with the taken messages,
but not beyond 5 s ago (that of the due index: 60 s). A higher one is ignored, whatever clock has written it. Messages
below a low watermark are found by a deep read, which lowers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shardq.storage import read_cursors
from shardq.storage.cassandra.rows import (
    DUE_WATERMARK,
    HISTORY_WATERMARK,
    Control,
    ControlRow,
    CursorPosition,
    Ready,
)
from shardq.storage.read_cursors import OLDEST, OVERLAP, CursorMap

__all__ = [
    "FEW_ROWS",
    "GUARD",
    "ReadCursor",
    "ReadCursors",
    "believed",
    "lowered",
    "raised",
    "with_history_watermark",
    "worth_raising",
]

GUARD = 5_000_000
"""A low watermark is so long before the present, in microseconds: what is stored later after its due time says so."""

FEW_ROWS = 32
"""No page is smaller: a row more costs little, a request more costs a millisecond."""

_DUE_GUARD = 60_000_000  # far above the time that a conditional batch may be on its way
_STEP = 5_000_000  # low watermarks are raised in such steps
_ROWS = 500  # or when this number of rows was taken


def believed(control: Control, now: int) -> Control:
    """Return the control row with low watermarks that a right clock can have raised until now."""
    ready, due = control.watermarks[:DUE_WATERMARK], control.watermarks[DUE_WATERMARK]
    if max(ready) < now - GUARD and due <= now - _DUE_GUARD:
        return control
    places = [min(place, (now - GUARD, b"", 0)) for place in control.places]
    return _with(control, places, min(due, now - _DUE_GUARD))


def raised(
    control: Control, places: Sequence[CursorPosition], due: int, now: int, taken: int = 0
) -> Control | None:
    """Raise the low watermarks to these places; None where that is not worth a write.

    It is worth one when a low watermark rises by a step, or ``taken`` rows became tombstones that it passes.
    """
    known = believed(control, now)
    higher = [max(pair) for pair in zip(known.places, places, strict=True)]
    after = believed(_with(control, higher, max(known.watermarks[DUE_WATERMARK], due)), now)
    steps = [new - old for new, old in zip(after.watermarks, known.watermarks, strict=True)]
    stepped = max(steps) >= _STEP
    return after if stepped or (taken >= _ROWS and after.places > known.places) else None


def worth_raising(row: ControlRow, first_due: int, now: int) -> Control | None:
    """Return the control row to write for a shard that has nothing ready, or None when that spares no reads.

    It spares reading tombstones where something was taken after the moments of the low watermarks.
    """
    watermarks = row.control.watermarks
    ready = min(watermarks[:DUE_WATERMARK]) <= row.taken_at < now - GUARD
    due = watermarks[DUE_WATERMARK] <= row.taken_at < now - _DUE_GUARD
    if not row.taken_at or not (ready or due):
        return None
    return raised(row.control, [(now, b"", 0)] * DUE_WATERMARK, first_due, now)


def lowered(control: Control, hidden: Mapping[int, CursorPosition], due: int | None = None) -> Control:
    """Lower the low watermarks to places by priority, that of the due index to ``due``; all clients begin anew."""
    places = [min(place, hidden.get(priority, place)) for priority, place in enumerate(control.places)]
    watermark = control.watermarks[DUE_WATERMARK]
    after = _with(control, places, watermark if due is None else min(watermark, due))
    return msgspec.structs.replace(after, late=control.late + 1)


def with_history_watermark(control: Control, watermark: int) -> Control:
    """Return the control row with the history's low watermark raised to a moment."""
    watermarks = list(control.watermarks)
    watermarks[HISTORY_WATERMARK] = max(watermarks[HISTORY_WATERMARK], watermark)
    return msgspec.structs.replace(control, watermarks=tuple(watermarks))


def _with(control: Control, places: Sequence[CursorPosition], due: int) -> Control:
    watermarks = (*[place[0] for place in places], due, *control.watermarks[HISTORY_WATERMARK:])
    return Control(watermarks, control.late, tuple([place[1:] for place in places]))


class ReadCursor(read_cursors.ReadCursor[CursorPosition]):
    """Where this client reads on in a shard, and what it saw of the shard's control row."""

    due_from: int = 0  # no lease is due before
    late: int = 0
    taken: bytes | None = None  # the control row's, from before anything else was read
    page: int = FEW_ROWS  # rows to read at once: the next claim takes about as many as the last one
    watermarks: tuple[CursorPosition, ...] = Control().places
    quiet_at: int = 0  # a full read at this moment found nothing ready
    passed: int = 0  # rows that this client took since it raised the low watermarks

    def rescan(self, control: Control, taken: bytes | None, now: int) -> None:
        """Begin at the low watermarks again."""
        control = believed(control, now)
        self.taken = taken
        self.watermarks = control.places
        self.places = list(self.watermarks)
        self.due_from = control.watermarks[DUE_WATERMARK]
        self.scanned_at = now
        self.late = control.late

    def forget(self) -> None:
        """Read the whole shard again before the next claim."""
        self.scanned_at = OLDEST

    def groups(self) -> dict[CursorPosition, list[int]]:
        """Return the priorities that are read from one place."""
        groups: dict[CursorPosition, list[int]] = {}
        for priority, place in enumerate(self.places):
            groups.setdefault(place, []).append(priority)
        return groups

    def starts(self) -> tuple[int, ...]:
        """Return by priority the moment to glance from: nothing is ready before, but for what came late."""
        quiet = self.quiet_at - OVERLAP
        if max(*self.places, *self.watermarks)[0] <= quiet:
            return (quiet,) * len(self.places)
        pairs = zip(self.places, self.watermarks, strict=True)
        return tuple(max(place[0], watermark[0], quiet) for place, watermark in pairs)

    def places_after(
        self, taken: Sequence[Ready], done: int, now: int, empty: Iterable[int] = ()
    ) -> list[CursorPosition]:
        """Return where to continue when these are taken, in order.

        Nothing is left of the priorities before ``done``, and nothing was in those that are ``empty``.
        """
        end = (now - OVERLAP, b"", 0)
        reached = [(priority, end) for priority in empty]
        reached += [
            (part.key.priority, (part.key.due, part.key.id, part.key.first + part.count)) for part in taken
        ]
        return self.places_beyond(done, reached, end)

    def consumed(self, places: list[CursorPosition], rows: int) -> None:
        """Continue from these places: this number of rows was taken."""
        self.places = places
        self.passed += rows

    def pass_due_rows(self, first: int, now: int) -> None:
        """Note that no lease was due before this moment."""
        self.due_from = max(self.due_from, min(first, now - OVERLAP))

    def raised(
        self, control: Control, places: Sequence[CursorPosition], rows: int, now: int
    ) -> Control | None:
        """Return the control row with low watermarks raised to these places; None when that is not worth a write."""
        return raised(control, places, self.due_from, now, self.passed + rows)

    def begin_anew(self, places: tuple[CursorPosition, ...]) -> None:
        """Read from these low watermarks again: something was found below what this client reads."""
        self.watermarks = places
        self.places = list(places)
        self.quiet_at = 0
        self.forget()


class ReadCursors(CursorMap[str, ReadCursor]):
    """The read cursors of this client. A shard that is new begins with the ``page`` of the last claim."""

    page: int = FEW_ROWS

    def of(self, shard: str) -> ReadCursor:
        """Return the read cursor of a shard. It may be used while this client has its turn in the shard."""
        return self.get(shard) or self.add(shard, ReadCursor(list(Control().places), page=self.page))
