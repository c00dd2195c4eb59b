"""A range is read to its end whatever the server refuses, in as many parts as that takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from shardq.storage.cassandra.faults import TombstonesRefused
from shardq.storage.cassandra.rows import READY
from shardq.storage.cassandra.scanning import FIRST, FOREVER, Position, scan
from shardq.storage.cassandra.session import Session

NOW = time.time_ns() // 1000
END = (10, 0, b"", FIRST)
PLACES = {
    "at one moment": lambda number: (5, NOW, number.to_bytes(16, "big"), 0),
    "one after the other": lambda number: (5, NOW - 20_000_000 + number, b"\1" * 16, 0),
    "in one bundle": lambda number: (7, NOW, b"\1" * 16, number),
    "long ago and far ahead": lambda number: (number % 10, (number - 500) << 50, b"\1" * 16, 0),
}


class Refusing:
    """A server that refuses reads of more than 30 tombstones between two rows; every hundredth row is there."""

    def __init__(self, positions: Sequence[Position]) -> None:
        self.positions, self.asked = sorted(positions), 0

    def start_read(
        self, _query: str, values: Sequence[Any], *, page: int | None = None
    ) -> Callable[[], Iterator[Position]]:
        self.asked += 1
        return lambda: self._rows(tuple(values[2:6]), tuple(values[6:]), page)

    def _rows(self, start: Any, end: Any, _page: int | None) -> Iterator[Position]:
        crossed = 0
        for number, position in enumerate(self.positions):
            if start <= position < end:
                if number % 100 == 0:
                    crossed = 0
                    yield position
                crossed += 1
                if crossed > 30:
                    raise TombstonesRefused("on purpose")


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("start", [(0, -FOREVER, b"", FIRST), (0, 0, b"", FIRST), (5, NOW - 10, b"", FIRST)])
def test_every_row_of_a_range_is_read_once_in_its_order(place: str, start: Position) -> None:
    server = Refusing([PLACES[place](number) for number in range(1000)])
    found = [row[:4] for row in scan(cast("Session", server), "q:0:0", READY, start, END)]
    assert found == [each for each in server.positions[::100] if start <= each < END]
    assert server.asked < 12_000
