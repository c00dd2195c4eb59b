"""What chords of many calls take: seconds, requests and memory, by one process with four threads that sends and runs.

    python -m tools.bench.tasks.large_chords   # on SQLite with synchronous=normal; prints the table of docs/tasks.md
    python tools/servers/mongodb.py run -- python -m tools.bench.tasks.large_chords --url {url}

Each chord has a process and, on SQLite, a file of its own. Its calls square a number, and the last step adds them up.
The memory is the most that was resident.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import msgspec

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.tasks import Tasks, TaskWorker, chord
from shardq.testing import WrappedStore

from ..cells import row

CALLS = (10_000, 20_000, 40_000, 100_000)
THREADS = 4

tasks = Tasks()


@tasks.task
def square(number: int) -> int:
    return number * number


@tasks.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


class Counting(WrappedStore):
    """Counts requests."""

    requests = 0

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        return super().call(method, do, *args, **kwargs)


class Taken(msgspec.Struct, frozen=True):
    """What a chord took; the memory in bytes, before the send and at most."""

    calls: int
    seconds: float
    requests: int
    before: int
    most: int

    @property
    def row(self) -> str:
        """A row of the table."""
        each, asked = 1e3 * self.seconds / self.calls, self.requests / self.calls
        most = f"{self.most / 1e6:.0f} MB"
        return row([f"{self.calls:,}", f"{self.seconds:.1f}", f"{each:.2f} ms", f"{asked:.2f}", most])


def measure(url: str, calls: int) -> Taken:
    """Send a chord, run all of it and take its result."""
    store = Counting(open_store(url, SystemClock()))
    with shardq.Client(store) as client:
        tasks.bind(client)
        before, began, asked = _most_memory(), time.perf_counter(), store.requests
        result = chord((square.signature(each) for each in range(calls)), total.then()).send()
        TaskWorker(tasks, client, threads=THREADS, idle_exit=0).run()
        if result.get(timeout=60) != sum(each * each for each in range(calls)):
            raise SystemExit(f"the chord of {calls} calls has a wrong sum")
        seconds = time.perf_counter() - began
        return Taken(calls, seconds, store.requests - asked, before, _most_memory())


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure each chord in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url")
    parser.add_argument("--calls", type=int, nargs="+", default=CALLS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(msgspec.json.encode(measure(options.url, options.one)).decode())
        return
    with tempfile.TemporaryDirectory(prefix="shardq-chords-") as folder:
        for calls in options.calls:
            url = options.url or f"sqlite:///{folder}/{calls}.db?synchronous=normal"
            command = [sys.executable, "-m", __spec__.name, "--url", url, "--one", str(calls)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            taken = msgspec.json.decode(done.stdout, type=Taken)
            print(taken.row, f" before the send: {taken.before / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
