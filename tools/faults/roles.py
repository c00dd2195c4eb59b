"""What the clients do: produce, work, keep leases, collect dead letters."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import shardq
from shardq.client import Client
from shardq.clock import SystemClock, from_datetime
from shardq.storage.opening import open_store

from .assignment import Assignment
from .defects import DEFECTS
from .dial import Dial
from .history import Delivery, Phase
from .recorder import Recorder

__all__ = ["play"]

RESENDS = 3
# What a worker does with a batch, and how often of 100 times.
WAYS = {"whole": 48, "each": 8, "release": 10, "extend": 8, "slow": 12, "late": 12, "never": 2}
PADDING = (0, 0, 100, 1_000)  # bytes behind the name of a message
_DELIVERIES = "shardq-deliveries"  # of a dead letter


def play(assignment: Assignment, dial: Dial) -> None:
    """Play the role until its work is done, or a SIGTERM comes."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    store = open_store(assignment.url, SystemClock())
    if assignment.defect:
        store = DEFECTS[assignment.defect](store)
    with Client(store, retry_seconds=assignment.retry_seconds) as client:
        role = {"produce": Producing, "work": Working, "keep": Keeping, "collect": Collecting}[
            assignment.role
        ]
        role(assignment, dial, client, stopped).run()


def _follow(campaign: int) -> None:
    """End with the campaign, however that ends."""
    while os.getppid() == campaign:
        time.sleep(1)
    os._exit(1)


class _Role:
    def __init__(self, assignment: Assignment, dial: Dial, client: Client, stopped: threading.Event) -> None:
        self.assignment, self.dial, self.stopped = assignment, dial, stopped
        self.dice = random.Random(assignment.seed)
        self.record = Recorder(assignment, dial, client)
        self.queue = self._patiently(client, assignment.queue)

    def _patiently(self, client: Client, name: str) -> shardq.Queue:
        while True:
            try:
                return client.queue(name)
            except shardq.ShardqError as error:
                if not error.retryable and not isinstance(error, shardq.StoreUnavailable):
                    raise
                self.pause(0.2)
                if self.stopped.is_set():
                    raise SystemExit from error

    def pause(self, seconds: float) -> None:
        if not self.dial.hurry:
            self.stopped.wait(seconds)


class Producing(_Role):
    """Sends singles, bundles and delayed messages, at a rate, until its number of them is used up."""

    def run(self) -> None:
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        with self.queue.producer(bundle_messages=20) as producer:
            while number < last and not self.stopped.is_set():
                count = min(self.dice.choice([1, 1, 7, 50]), last - number)
                name = self.assignment.name.partition(".")[0]
                bodies = [f"{name}-{each}" for each in range(number, number + count)]
                number += count
                self._send(producer, bodies)
                self.pause(count / self.assignment.rate * self.dice.uniform(0.5, 1.5))

    def _send(self, producer: shardq.Producer, bodies: list[str]) -> None:
        delay = self.dice.choice([0.0, 0.0, 0.0, 0.5, 2.0])
        priority = self.dice.randrange(10)
        padding = b" " * self.dice.choice(PADDING)
        raw = [body.encode() + padding for body in bodies]
        self.record.invoke("send", bodies, seconds=delay)
        try:
            if len(raw) == 1:
                producer.send(raw[0], delay=delay, priority=priority)
            else:
                producer.send_many(raw, delay=delay, priority=priority)
        except shardq.PartialSend as error:
            self._send_the_rest(producer, bodies, error)
        except shardq.ShardqError as error:
            # Only StoreUnavailable says that nothing was stored; everything else may have been.
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome("send", Phase.FAILED if sure else Phase.UNKNOWN, bodies, note=error)
            self.pause(0.2)
        else:
            self.record.outcome("send", Phase.OK, bodies)

    def _send_the_rest(
        self, producer: shardq.Producer, bodies: list[str], partial: shardq.PartialSend
    ) -> None:
        """Send what was not stored again, under the same ids; what is not stored in the end is unknown."""
        unsent = partial.unsent
        for _ in range(RESENDS):
            self.pause(0.2)
            try:
                producer.send_many(unsent)
            except shardq.PartialSend as error:
                unsent = error.unsent
            except shardq.ShardqError:
                continue
            else:
                unsent = []
                break
        missing = {_name(message.body) for message in unsent}
        stored = [body for body in bodies if body not in missing]
        self.record.outcome("send", Phase.OK if stored else Phase.UNKNOWN, stored, note=partial)


class _Receiving(_Role):
    verb = "receive"
    limits = (1, 10, 100)

    def receive(self, consumer: shardq.Consumer) -> shardq.Batch | None:
        self.record.invoke(self.verb)
        limit = 100 if self.dial.hurry else self.dice.choice(self.limits)
        try:
            batch = consumer.receive(limit, wait=0.5)
        except shardq.ShardqError as error:
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome(self.verb, Phase.FAILED if sure else Phase.UNKNOWN, note=error)
            self.stopped.wait(0.1)
            return None
        self.record.outcome(self.verb, Phase.OK, deliveries=[_delivery(message) for message in batch])
        return batch

    def settle(self, verb: str, batch: shardq.Batch, number: int, seconds: float = 0.0) -> None:
        bodies = [_name(message.raw) for message in batch]
        act = {
            "ack": batch.ack,
            "release": lambda: batch.release(delay=seconds),
            "extend": lambda: batch.extend(seconds),
        }[verb]
        if bodies:
            self.record.settle(verb, bodies, act, batch=number, seconds=seconds)


class Working(_Receiving):
    """Receives, and acks as a whole, in parts, one by one, late, or not at all."""

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease) as consumer:
            while not self.stopped.is_set():
                batch = self.receive(consumer)
                if batch:
                    self._work(batch, self.record.number)

    def _work(self, batch: shardq.Batch, number: int) -> None:
        if self.dial.hurry:
            self.settle("ack", batch, number)
            return
        way = self.dice.choices([*WAYS], [*WAYS.values()])[0]
        self.pause(self.dice.random() * 0.05)
        getattr(self, f"_{way}")(batch, number)

    def _whole(self, batch: shardq.Batch, number: int) -> None:
        self.settle("ack", batch, number)

    def _each(self, batch: shardq.Batch, number: int) -> None:
        few, rest = batch[:5], batch[5:]
        for message in few:
            self.settle("ack", batch.part([message]), number)
        self.settle("ack", batch.part(rest), number)

    def _release(self, batch: shardq.Batch, number: int) -> None:
        self.settle("release", batch.part(batch[:3]), number, self.dice.choice([0.0, 0.3]))
        self.settle("ack", batch.part(batch[3:]), number)

    def _extend(self, batch: shardq.Batch, number: int) -> None:
        self.settle("extend", batch, number, self.assignment.lease * 2)
        self.pause(self.assignment.lease * 0.2)
        self.settle("ack", batch, number)

    def _slow(self, batch: shardq.Batch, number: int) -> None:
        self.pause(self.assignment.lease * 0.6)
        self.settle("ack", batch, number)

    def _late(self, batch: shardq.Batch, number: int) -> None:
        """Ack when the lease is over, if possible just when somebody else has the first message."""
        self.pause(self.assignment.lease)
        until = time.monotonic() + self.assignment.lease
        while time.monotonic() < until and not self.dial.hurry and not self._is_taken(batch[0]):
            time.sleep(0.002)
        self.settle("ack", batch, number)

    def _is_taken(self, message: shardq.Message) -> bool:
        try:
            stored = self.queue.get(message.id)
        except shardq.ShardqError:
            return True
        return stored is None or stored.deliveries > message.deliveries

    def _never(self, batch: shardq.Batch, number: int) -> None:
        """A worker that forgets what it was doing."""


class Keeping(_Receiving):
    """Works for longer than the lease, which a lease keeper extends meanwhile."""

    limits = (20,)

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease, keep_leases=True) as consumer:
            while not self.stopped.is_set():
                batch = self.receive(consumer)
                if batch:
                    number = self.record.number
                    self.pause(self.assignment.lease * self.dice.uniform(0.0, 1.5))
                    self.settle("ack", batch, number)


class Collecting(_Receiving):
    """Drains the dead-letter queue."""

    verb = "bury"

    def run(self) -> None:
        empty = 0
        with self.queue.consumer(visibility_timeout=60) as consumer:
            while empty < 3 and not self.stopped.is_set():
                batch = self.receive(consumer)
                if batch:
                    batch.ack()
                empty = 0 if batch or batch is None else empty + 1


def _name(body: bytes) -> str:
    return body.decode().rstrip(" ")


def _delivery(message: shardq.Message) -> Delivery:
    deliveries = message.headers.get(_DELIVERIES, message.deliveries)
    return Delivery(
        _name(message.raw), message.id, message.priority, from_datetime(message.due), int(deliveries)
    )
