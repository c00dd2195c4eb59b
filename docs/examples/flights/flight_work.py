"""The code of the child processes: producers send flights, and workers write a result for each of them."""

from __future__ import annotations

import csv
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from flight_data import COLUMNS, read_rows

import shardq

__all__ = ["KILLED", "Flights", "Result", "Sent", "results_in", "send_flights", "whole"]

KILLED = "killed"  # the file in which a worker states how many messages it held when it was killed


class Sent(NamedTuple):
    """The number of flights that a producer has sent, and when it began and ended, in seconds since 1970."""

    flights: int
    began: float
    ended: float


def send_flights(url: str, queue: str, data: Path, first: int, last: int) -> Sent:
    """Send the rows from ``first`` until ``last``, counted from 0, in bulk. Each message has its row number, from 1."""
    rows = islice(read_rows(data), first, last)
    bodies = (
        {"row": row, **dict(zip(COLUMNS, cells, strict=True))} for row, cells in enumerate(rows, first + 1)
    )
    with shardq.connect(url) as client, client.queue(queue).producer(codec=shardq.JSON) as producer:
        began = time.time()
        return Sent(len(producer.send_many(bodies)), began, time.time())


class Result(NamedTuple):
    """The work on one flight. Delays are minutes; None for a flight that never left, or never arrived."""

    row: int
    carrier: str
    dep_delay: int | None
    arr_delay: int | None
    made_up: int | None  # minutes made up between departure and arrival
    deliveries: int  # the number of times that the message was delivered, this time included
    worked_at: float  # seconds since 1970


@dataclass(frozen=True)
class Flights:
    """The handler of the workers. It writes a result for each flight of a batch; then the worker acks the batch.

    The first worker that receives one of the ``fatal`` rows kills itself when it has written half of its results, as if
    its machine had lost power. It acks nothing. Its messages are delivered again when their lease expires.
    """

    folder: Path
    fatal: range

    def __call__(self, batch: shardq.Batch) -> None:
        """Work on a batch."""
        results, half = [_result(message) for message in batch], len(batch) // 2
        with (self.folder / f"results-{os.getpid()}.csv").open("a", newline="") as file:
            writer = csv.writer(file)
            writer.writerows(results[:half])
            if any(each.row in self.fatal for each in results):
                file.flush()
                self._die_first(len(batch))
            writer.writerows(results[half:])

    def _die_first(self, held: int) -> None:
        """Kill this process, unless another worker was killed before."""
        with suppress(FileExistsError), (self.folder / KILLED).open("x") as file:
            file.write(str(held))
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)


def _result(message: shardq.Message) -> Result:
    flight: dict[str, Any] = message.body
    departure, arrival = whole(flight["dep_delay"]), whole(flight["arr_delay"])
    made_up = None if departure is None or arrival is None else departure - arrival
    return Result(
        flight["row"], flight["carrier"], departure, arrival, made_up, message.deliveries, time.time()
    )


def whole(cell: str) -> int | None:
    """Return the number in a cell of the data, or of a file of results."""
    return None if cell in ("NA", "") else int(cell)


def results_in(folder: Path) -> Iterator[Result]:
    """Yield the results that all workers have written."""
    for path in sorted(folder.glob("results-*.csv")):
        with path.open(newline="") as file:
            for row, carrier, departure, arrival, made_up, deliveries, at in csv.reader(file):
                delays = whole(departure), whole(arrival), whole(made_up)
                yield Result(int(row), carrier, *delays, int(deliveries), float(at))
