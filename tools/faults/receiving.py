"""Clients that receive: work, keep leases, collect dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import shardq
from shardq.base.clock import from_datetime

from .history import Delivery, Phase
from .role import Role, name_of

__all__ = ["Arriving", "Collecting", "Keeping", "Overlapping", "Prefetching", "Working", "delivery_of"]

# What a worker does with a batch, and how often of 100 times.
WAYS = {"whole": 48, "each": 8, "release": 10, "extend": 8, "slow": 12, "late": 12, "never": 2}
LONG_WORK = 0.05  # of the batches of a prefetching worker take it longer than the lease
_DELIVERIES = "shardq-deliveries"  # of a dead letter


class Receiving(Role):
    verb = "receive"
    limits: tuple[int, ...] = (1, 10, 100)

    def receive(self, consumer: shardq.Consumer) -> shardq.Batch | None:
        limit = 100 if self.dial.hurry else self.dice.choice(self.limits)
        return self.received(lambda: consumer.receive(limit, wait=0.5))

    def take_turns(self, consumer: shardq.Consumer) -> None:
        """Do one turn after the other, each of which may be interrupted."""
        while not self.stopped.is_set():
            self.step(partial(self.turn, consumer))

    def turn(self, consumer: shardq.Consumer) -> None:
        """Receive, and work."""
        raise NotImplementedError

    def received(self, receive: Callable[[], shardq.Batch | None]) -> shardq.Batch | None:
        """What a call gave, written down; None when it failed or gave nothing."""
        self.record.invoke(self.verb)
        try:
            batch = receive()
        except shardq.ShardqError as error:
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome(self.verb, Phase.FAILED if sure else Phase.UNKNOWN, note=error)
            self.stopped.wait(0.1)
            return None
        self.record.outcome(
            self.verb, Phase.OK, deliveries=[self.delivery(message) for message in batch or ()]
        )
        return batch

    def delivery(self, message: shardq.Message) -> Delivery:
        """What is written down of a message."""
        return delivery_of(message)

    def settle(self, verb: str, batch: shardq.Batch, number: int, seconds: float = 0.0) -> None:
        bodies = [name_of(message.raw) for message in batch]
        act = {
            "ack": batch.ack,
            "release": lambda: batch.release(delay=seconds),
            "extend": lambda: batch.extend(seconds),
        }[verb]
        if bodies:
            self.record.settle(verb, bodies, act, batch=number, seconds=seconds)


class Working(Receiving):
    """Receives, and acks as a whole, in parts, one by one, late, or not at all."""

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease) as consumer:
            self.take_turns(consumer)

    def turn(self, consumer: shardq.Consumer) -> None:
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
            time.sleep(0.01)
        self.settle("ack", batch, number)

    def _is_taken(self, message: shardq.Message) -> bool:
        try:
            stored = self.queue.get(message.id)
        except shardq.ShardqError:
            return True
        return stored is None or stored.deliveries > message.deliveries

    def _never(self, batch: shardq.Batch, number: int) -> None:
        """A worker that forgets what it was doing."""


class Keeping(Receiving):
    """Works for longer than the lease, which a lease keeper extends meanwhile."""

    limits = (20,)

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease, keep_leases=True) as consumer:
            self.take_turns(consumer)

    def turn(self, consumer: shardq.Consumer) -> None:
        batch = self.receive(consumer)
        if batch:
            number = self.record.number
            self.pause(self.assignment.lease * self.dice.uniform(0.0, 1.5))
            self.settle("ack", batch, number)


class Prefetching(Receiving):
    """Has messages claimed ahead; now and then works for longer than the lease, while others wait in its buffer."""

    limits = (1, 5, 20)

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease, prefetch=40) as consumer:
            self.take_turns(consumer)

    def turn(self, consumer: shardq.Consumer) -> None:
        batch = self.receive(consumer)
        if batch:
            number, lease = self.record.number, self.assignment.lease
            long = self.dice.random() < LONG_WORK
            self.pause(lease * self.dice.uniform(1.0, 1.5) if long else self.dice.random() * 0.1)
            self.settle("ack", batch, number)


class Overlapping(Receiving):
    """Receives by ``batches``: where the store is on a network the next batch is claimed while one is acked.

    Now and then it works for so long that what was claimed is given back.
    """

    limits = (1, 10, 50)

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease) as consumer:
            self.take_turns(consumer)

    def turn(self, consumer: shardq.Consumer) -> None:
        batches = consumer.batches(self.dice.choice(self.limits), wait=0.5)
        while batch := self.received(partial(next, batches, None)):
            self.settle("ack", batch, self.record.number)
            self.pause(self.dice.choice((0.0, 0.0, 0.02, 1.5)))
            if self.stopped.is_set():
                break


class Collecting(Receiving):
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


class Arriving(Collecting):
    """Drains the queue that the messages of the side queue are moved to."""

    verb = "arrive"


def delivery_of(message: shardq.Message) -> Delivery:
    """What is written down of a message, or of a dead letter with the deliveries that it had before."""
    deliveries = message.headers.get(_DELIVERIES, message.deliveries)
    return Delivery(
        name_of(message.raw), message.id, message.priority, from_datetime(message.due), int(deliveries)
    )
