"""A large body in and out of a queue: time and memory of a client of its own, and that nothing of it stays.

    python -m tools.bench.large_bodies sqlite:////tmp/films.db
    python tools/servers/mongodb.py run -- .venv/bin/python -m tools.bench.large_bodies {url}

1. A process sends a file with `send_file`. A second one receives it, reads it by `message.open()` and acks it.
2. Another file is sent and purged, and a sweep comes three hours later.
3. Senders and readers are killed with SIGKILL at random moments. What a killed reader held another one reads whole.

After each, the parts that are stored are counted behind the store, in its rows or documents. The exit code is 1 if one
is left, or when the memory is above --most. Needs Linux and a database in which no large body is stored.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path

import msgspec

import shardq
from shardq.base.clock import SystemClock
from shardq.core.large.layout import BODIES
from shardq.storage.opening import open_store
from shardq.testing import WrappedStore
from tools.audit.by_url import read_by_url

LATER = 3 * 3_600_000_000  # microseconds
LEASE = 5.0
MEGABYTE = 1_000_000


class Cost(msgspec.Struct, frozen=True):
    """Seconds, and megabytes of memory above those of the idle client."""

    seconds: float
    megabytes: float


class Later(WrappedStore):
    """A store three hours later."""

    def now(self) -> int:
        return super().now() + LATER


# -- the client, a process of its own ---------------------------------------------------------------------------------


def client(url: str, queue: str, path: str, what: str) -> None:
    """Send, read and ack, or a part of that; prints what each took."""
    with shardq.connect(url) as opened:
        films = opened.queue(queue)
        films.peek(1)
        done: dict[str, Cost] = {}
        if "send" in what:
            done["send"] = measured(lambda: films.producer().send_file(path))
        if "read" in what:
            (message,) = films.consumer(keep_leases=True).receive(1, wait=60)
            done["read"] = measured(lambda: read(message, path))
            done["ack"] = measured(message.ack)
    print(msgspec.json.encode(done).decode())


def read(message: shardq.Message, path: str) -> None:
    with Path(path).open("rb") as sent, message.open() as film:
        print("reading", flush=True)
        if file_digest(sent, "sha256").digest() != file_digest(film, "sha256").digest():
            raise SystemExit("what was read is not what was sent")


def measured(do: Callable[[], object]) -> Cost:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    rest, began = memory("VmRSS"), time.perf_counter()
    do()
    return Cost(time.perf_counter() - began, memory("VmHWM") - rest)


def memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1000


# -- what is done with it ---------------------------------------------------------------------------------------------


class Trial:
    """Large bodies in a queue of its own."""

    def __init__(self, url: str, path: Path) -> None:
        self._url, self._path = url, path
        self._store = shardq.Client(Later(open_store(url, SystemClock())))
        self.name = f"films-{os.urandom(4).hex()}"
        self.queue = self._store.create_queue(self.name, visibility_timeout=LEASE)

    def start(self, what: str) -> subprocess.Popen[str]:
        module = [sys.executable, "-m", "tools.bench.large_bodies"]
        return subprocess.Popen(
            [*module, self._url, "--client", self.name, str(self._path), what],
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, what: str) -> dict[str, Cost]:
        process = self.start(what)
        said, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"the client that was to {what} failed")
        return msgspec.json.decode(said.splitlines()[-1], type=dict[str, Cost])

    def left(self) -> int:
        """How many parts and entries are stored, behind the store."""
        if not self._store.exists(BODIES):
            return 0
        raw = read_by_url(self._url, BODIES)
        return sum(map(len, raw.bodies.values())) + sum(map(len, raw.entries.values())) + len(raw.strays)

    def close(self) -> None:
        self._store.delete_queue(self.name)
        self._store.close()


def kill(process: subprocess.Popen[str], seconds: float) -> None:
    """End a process without a word, so long from now."""
    time.sleep(seconds)
    process.kill()
    process.communicate()


def run(trial: Trial, kills: int, dice: random.Random) -> tuple[dict[str, Cost], dict[str, int]]:
    """All that is measured, and what was left after each step."""
    left: dict[str, int] = {"before": trial.left()}
    costs = trial.run("send") | trial.run("read")
    left["after the ack"] = trial.left()
    trial.run("send")
    trial.queue.purge()
    trial.queue.sweep()
    left["after a purge and a sweep"] = trial.left()
    for _ in range(kills):
        sender = trial.start("send")
        while not trial.left() and sender.poll() is None:
            time.sleep(0.01)
        kill(sender, dice.uniform(0, costs["send"].seconds))
        trial.queue.purge()
        trial.queue.sweep()
        left["after killed senders"] = left.get("after killed senders", 0) + trial.left()
    for _ in range(kills):
        trial.run("send")
        reader = trial.start("read")
        assert reader.stdout is not None
        reader.stdout.readline()
        kill(reader, dice.uniform(0, costs["read"].seconds))
        if trial.queue.counts().in_flight:
            trial.run("read")
        trial.queue.sweep()
        left["after killed readers"] = left.get("after killed readers", 0) + trial.left()
    return costs, left


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--megabytes", type=int, default=100, help="of the file")
    parser.add_argument("--kills", type=int, default=3, help="of senders, and of readers")
    parser.add_argument("--most", type=float, default=64.0, help="megabytes of memory above rest")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options.url, *options.client)
        return
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(options.megabytes):
            file.write(os.urandom(MEGABYTE))
        file.flush()
        trial = Trial(options.url, Path(file.name))
        try:
            costs, left = run(trial, options.kills, random.Random(1))
        finally:
            trial.close()
    for name, cost in costs.items():
        print(f"{name:4} {cost.seconds:6.2f} s  {cost.megabytes:5.1f} MB of memory above rest")
    for name, count in left.items():
        print(f"{name}: {count} parts are left")
    broken = any(left.values()) or any(cost.megabytes > options.most for cost in costs.values())
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
