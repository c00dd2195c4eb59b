"""The comparison of the results with the file, row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flight_work import Result, whole

__all__ = ["Left", "Line", "check"]

_CARRIER, _DEPARTURE, _ARRIVAL = 9, 5, 8  # places in a row of the file


class Left(NamedTuple):
    """The messages that are still stored at the end."""

    in_queue: int
    dead: int


class Line(NamedTuple):
    """One line of the report."""

    what: str
    found: int
    expected: int
    is_right: bool

    def __str__(self) -> str:
        return f"{'ok' if self.is_right else 'WRONG':<6}{self.what:<34}{self.found:>9,}  expected {self.expected:,}"


def check(
    rows: Iterable[Sequence[str]], results: Iterable[Result], *, sent: int, held: int | None, left: Left
) -> list[Line]:
    """Compare the results of a run with the rows of the file.

    ``held`` is the number of messages that a worker held when it was killed; None if none was to be killed. Delivery is
    at least once, so a flight may have several results, each of another delivery.
    """
    by_row: defaultdict[int, list[Result]] = defaultdict(list)
    for result in results:
        by_row[result.row].append(result)
    twice = sum(len(found) - len({each.deliveries for each in found}) for found in by_row.values())
    again = sum(each.deliveries > 1 for found in by_row.values() for each in found)
    flights = unlike = missing = 0
    for number, row in enumerate(rows, 1):
        flights += 1
        found = by_row.pop(number, [])
        missing += not found
        unlike += sum(not _is_as_in_file(each, row) for each in found)
    unlike += sum(map(len, by_row.values()))  # of rows that are not in the file
    lines = [
        _equal("flights sent", sent, flights),
        _equal("flights with a result", flights - missing, flights),
        _equal("results that differ from the file", unlike, 0),
        _equal("results of one delivery twice", twice, 0),
        _equal("messages left in the queue", left.in_queue, 0),
        _equal("dead letters", left.dead, 0),
    ]
    if held is not None:
        lines.append(Line("delivered again after the kill", again, held, again >= held > 0))
    return lines


def _equal(what: str, found: int, expected: int) -> Line:
    return Line(what, found, expected, found == expected)


def _is_as_in_file(result: Result, row: Sequence[str]) -> bool:
    departure, arrival = whole(row[_DEPARTURE]), whole(row[_ARRIVAL])
    made_up = None if departure is None or arrival is None else departure - arrival
    found = (result.carrier, result.dep_delay, result.arr_delay, result.made_up)
    return found == (row[_CARRIER], departure, arrival, made_up)
