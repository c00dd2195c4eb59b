"""A load as `shardq plan` means it, and what it takes: producers and consumers at work beside each other.

Each producer sends one bundle after the other at a steady rate, and each consumer receives, reads and acks what comes.
All are processes of their own. What they take is counted in processor time, after a second of warming up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import msgspec
import psutil

import shardq
from tools.bench.stores.processes import Job, Ready, run_together

__all__ = ["Meter", "Paced", "Taken", "run_served", "run_waiting"]

WARM_UP = 1.0  # seconds
MOST_WAITED = 2.0  # seconds, by a consumer
DIFFERENT_BODIES = 2_000
SERVERS = ("mongod", "postgres")


class Paced(msgspec.Struct, frozen=True):
    """So many messages a second, in bundles, and the layout of their queue."""

    rate: float
    size: int  # bytes of a body
    bundle: int
    per_claim: int = 500
    producers: int = 1
    consumers: int = 1
    layout: dict[str, float] = {}


class Taken(msgspec.Struct, frozen=True):
    """What was sent or received, and its processor time in microseconds."""

    cost: float
    messages: int
    turns: int  # bundles of a producer, claims of a consumer
    every: int  # messages, with those of warming up

    @property
    def of_message(self) -> float:
        """Microseconds of a message."""
        return self.cost / max(1, self.messages)

    @classmethod
    def total(cls, each: list[Taken]) -> Taken:
        """What several have taken together."""
        return cls(
            sum(one.cost for one in each), sum(one.messages for one in each), sum(one.turns for one in each),
            sum(one.every for one in each),
        )  # fmt: skip


class Served(msgspec.Struct, frozen=True):
    """What a load took: its producers, its consumers, and the servers in microseconds of a message."""

    producers: Taken
    consumers: Taken
    servers: float


class Meter:
    """Processor time of the servers: those of the command that runs this, `tools/servers/<name>.py run`."""

    def __init__(self) -> None:
        parent = psutil.Process().parent()
        beside = parent.children() if parent is not None else []
        self._servers = [process for process in beside if _is_server(process)]

    def of(self, do: Callable[[], object]) -> float:
        """Microseconds that the servers take while something is done."""
        before = self._used()
        do()
        return 1e6 * (self._used() - before)

    def _used(self) -> float:
        return float(sum(map(_used_by, self._servers)))


def run_paced(url: str, load: Paced, seconds: float) -> tuple[Taken, Taken]:
    """Run a load for some seconds in a new queue: what its producers and its consumers took."""
    name = f"m{os.urandom(6).hex()}"
    with shardq.connect(url) as client:
        client.create_queue(name, **load.layout)  # type: ignore[arg-type]
        jobs = [Job(_produce, (url, name, load, seconds))] * load.producers
        told = run_together(jobs + [Job(_consume, (url, name, load))] * load.consumers)
        client.delete_queue(name)
    return Taken.total(told[: load.producers]), Taken.total(told[load.producers :])


def run_served(url: str, load: Paced, seconds: float) -> Served:
    """Run a load for a second, and for so many seconds more: to make and delete the queue costs the same in both."""

    def run(several: float) -> tuple[tuple[Taken, Taken], float]:
        told: list[tuple[Taken, Taken]] = []
        took = Meter().of(lambda: told.append(run_paced(url, load, several)))
        return told[0], took

    (few, _), short = run(1.0)
    (sent, received), long = run(1.0 + seconds)
    idle = Meter().of(lambda: time.sleep(seconds))
    return Served(sent, received, max(0.0, long - short - idle) / max(1, sent.every - few.every))


def run_waiting(url: str, meter: Meter, layout: dict[str, float], seconds: float) -> tuple[float, float]:
    """Let a consumer wait: microseconds that it takes in a second, and the servers beyond what they take anyway."""
    name = f"m{os.urandom(6).hex()}"
    with shardq.connect(url) as client:
        client.create_queue(name, **layout)  # type: ignore[arg-type]
        used: list[float] = []

        def wait(several: float) -> float:
            """Cost of the servers. What they take for a consumer that begins and ends is the same for all waits."""
            client.queue(name).producer().send(b"one")
            return meter.of(lambda: used.extend(run_together([Job(_wait, (url, name, several))])))

        short, long = wait(seconds), wait(3 * seconds)
        idle = meter.of(lambda: time.sleep(seconds)) / seconds
        client.delete_queue(name)
    return used[-1], max(0.0, (long - short) / (2 * seconds) - idle)


def _wait(ready: Ready, url: str, name: str, seconds: float) -> float:
    with shardq.connect(url) as client, client.queue(name).consumer() as consumer:
        consumer.receive(1).ack()
        ready()
        consumer.receive(1, wait=WARM_UP)
        before = time.process_time()
        consumer.receive(1, wait=seconds)
        return 1e6 * (time.process_time() - before) / seconds


def _produce(ready: Ready, url: str, name: str, load: Paced, seconds: float) -> Taken:
    pause = load.bundle * load.producers / load.rate
    several = 1 + DIFFERENT_BODIES // load.bundle
    bodies = cycle([[os.urandom(load.size) for _ in range(load.bundle)] for _ in range(several)])
    every = turns = 0
    used = 0.0
    with shardq.connect(url) as client, client.queue(name).producer(bundle_messages=load.bundle) as producer:
        began = turn = ready()
        while turn < began + WARM_UP + seconds:
            time.sleep(max(0.0, turn - time.monotonic()))
            before = time.process_time()
            producer.send_many(next(bodies))
            every += load.bundle
            if turn > began + WARM_UP:
                used += time.process_time() - before
                turns += 1
            turn += pause
    return Taken(1e6 * used, turns * load.bundle, turns, every)


def _consume(ready: Ready, url: str, name: str, load: Paced) -> Taken:
    """Work until nothing comes any more. Its time counts from one ack to another, with the waits between them."""
    with shardq.connect(url) as client, client.queue(name).consumer() as consumer:
        began = ready()
        start = used = 0.0
        counted = turns = every = 0
        for batch in consumer.batches(load.per_claim, wait=MOST_WAITED):
            for message in batch:
                every += bool(message.body)
            batch.ack()
            used, turns = time.process_time(), turns + 1
            if not start and time.monotonic() > began + WARM_UP:
                start, counted, turns = used, every, 0
        return Taken(1e6 * (used - start), every - counted, turns, every)


def _is_server(process: psutil.Process) -> bool:
    return any("CassandraDaemon" in word or Path(word).name in SERVERS for word in process.cmdline())


def _used_by(process: psutil.Process) -> float:
    """Seconds of a server, of those of its processes that live, and of those that have ended."""
    try:
        own = process.cpu_times()
        beside = sum(map(_used_by, process.children()))
    except psutil.NoSuchProcess:  # it has just ended: its parent's time has it now
        return 0.0
    return float(own.user + own.system + own.children_user + own.children_system + beside)
