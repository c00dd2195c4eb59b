"""One client under the recorder: ``python -m tools.power_loss.client ROLE NAME URL FOLDER MESSAGES SEED``."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import shardq

from .marks import Fate, Marker

__all__ = ["QUEUE", "body_of"]

QUEUE = "jobs"
_IDLE_SECONDS = 2.0


def body_of(name: str, number: int) -> str:
    """A body whose length follows from its number, so that whoever reads it sees whether all of it is there."""
    return f"{name}.{number}.{'x' * (number * 37 % 700)}"


def produce(queue: shardq.Queue, mark: Marker, name: str, messages: int, chance: random.Random) -> None:
    """Send one by one and in batches."""
    number = 0
    with queue.producer() as producer:
        while number < messages:
            count = chance.choice([1, 1, 1, 2, 20])
            bodies = [body_of(name, number + i) for i in range(count)]
            number += count
            mark(Fate.SENDING, bodies)
            if count == 1:
                producer.send(bodies[0].encode())
            else:
                producer.send_many([body.encode() for body in bodies])
            mark(Fate.SENT, bodies)


def consume(queue: shardq.Queue, mark: Marker, chance: random.Random) -> None:
    """Ack, release and dead-letter what comes, until nothing comes any more."""
    with queue.consumer() as consumer:
        while messages := consumer.receive(chance.choice([1, 1, 5, 30]), wait=_IDLE_SECONDS):
            for message in messages:
                body, dice = message.raw.decode(), chance.random()
                if dice < 0.8:
                    mark(Fate.ACKING, [body])
                    message.ack()
                    mark(Fate.ACKED, [body])
                elif dice < 0.9:
                    message.release()
                else:
                    mark(Fate.DYING, [body])
                    message.dead_letter("as the dice fell")
                    mark(Fate.DEAD, [body])


def main() -> None:
    role, name, url, folder, messages, seed = sys.argv[1:]
    mark, chance = Marker(Path(folder), name), random.Random(seed)
    with shardq.connect(url) as client:
        queue = client.queue(QUEUE)
        if role == "producer":
            produce(queue, mark, name, int(messages), chance)
        else:
            consume(queue, mark, chance)


if __name__ == "__main__":
    main()
