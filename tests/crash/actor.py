"""A producer or a worker as a process of its own, which writes down what it does.

``actor.py produce|trickle|work|hold URL QUEUE LOG SEED``. Each line of the log is one event, written in one system
call:
``<monotonic nanoseconds> <event> <body>...``.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable

import shardq


class Log:
    """Events that survive the death of the process that wrote them."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: str, bodies: Iterable[bytes], at: int | None = None) -> None:
        line = f"{at or time.monotonic_ns()} {event} {' '.join(body.decode() for body in bodies)}\n"
        os.write(self._file, line.encode())


def produce(queue: shardq.Queue, log: Log, seed: str, pause: float = 0.01) -> None:
    """Send singles, bundles and delayed messages until killed."""
    dice = random.Random(seed)
    number = 0
    with queue.producer(bundle_messages=20) as producer:
        while True:
            count = dice.choice([1, 1, 7, 50])
            bodies = [f"{seed}-{number + offset}".encode() for offset in range(count)]
            number += count
            log.write("sending", bodies)
            if count == 1:
                producer.send(bodies[0], priority=dice.randrange(10))
            else:
                producer.send_many(bodies, delay=dice.choice([0.0, 0.0, 0.2]))
            log.write("sent", bodies)
            time.sleep(dice.random() * pause)


def trickle(queue: shardq.Queue, log: Log, seed: str) -> None:
    """Send less, where three servers share the machine with the actors."""
    produce(queue, log, seed, pause=0.2)


def work(queue: shardq.Queue, log: Log, seed: str) -> None:
    """Receive, and ack as a whole, one by one, or not at all, until killed."""
    dice = random.Random(seed)
    with queue.consumer() as consumer:
        while True:
            asked = time.monotonic_ns()
            batch = consumer.receive(dice.choice([1, 10, 60]), wait=1)
            log.write("received", [message.body for message in batch], asked)
            time.sleep(dice.random() * 0.02)
            settle(batch, log, dice)


def hold(queue: shardq.Queue, log: Log, _: str) -> None:
    """Receive one batch, keep it for a while, ack it as a whole."""
    with queue.consumer() as consumer:
        batch = consumer.receive(60, wait=10)
        log.write("received", [message.body for message in batch])
        time.sleep(0.3)
        attempt(log, "acked", list(batch), batch.ack)


def settle(batch: shardq.Batch, log: Log, dice: random.Random) -> None:
    """One of the ways in which a worker ends with a batch."""
    way = dice.choice(["batch", "batch", "each", "release"])
    if way == "release" and batch:
        attempt(log, "released", [batch[0]], batch[0].release)
    if way == "each":
        for message in batch:
            attempt(log, "acked", [message], message.ack)
    else:
        attempt(log, "acked", list(batch)[way == "release" :], batch.ack)


def attempt(log: Log, event: str, messages: list[shardq.Message], settle_them: object) -> None:
    """Settle messages and write down which of them were."""
    lost: set[shardq.Message] = set()
    if event == "acked":
        log.write("acking", [message.body for message in messages])
    try:
        settle_them()  # type: ignore[operator]
    except shardq.LeaseLost as error:
        lost = set(error.messages)
        log.write("lost", [message.body for message in error.messages])
    log.write(event, [message.body for message in messages if message not in lost])


if __name__ == "__main__":
    role, url, name, path, seed = sys.argv[1:]
    actor = {"produce": produce, "trickle": trickle, "work": work, "hold": hold}[role]
    with shardq.connect(url) as client:
        actor(client.queue(name), Log(path), seed)
