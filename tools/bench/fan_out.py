"""Fan-out: how many messages a second four subscriptions of a topic deliver, beside four queues that are sent to.

``python tools/bench/fan_out.py sqlite:////tmp/fan.db --messages 50000``. Each has a thread that receives and acks; one
thread publishes, or sends to all four. The relay runs in a thread of its own.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence
from statistics import median

import shardq

RECEIVERS = 4
BATCH = 500
BODY = bytes(100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with shardq.connect(options.url) as client:
        ratios = []
        for _ in range(options.rounds):
            queues = through_queues(client, options.messages)
            topic = through_a_topic(client, options.messages)
            ratios.append(topic / queues)
            print(f"queues {queues:,.0f}/s  topic {topic:,.0f}/s  {topic / queues:.0%}", flush=True)
        print(f"median {median(ratios):.0%}  ({min(ratios):.0%} .. {max(ratios):.0%})")


def through_queues(client: shardq.Client, messages: int) -> float:
    """Messages a second through four queues."""
    names = [f"fan-{os.urandom(4).hex()}" for _ in range(RECEIVERS)]
    queues = [client.create_queue(name, shards=2, time_shards=4) for name in names]

    def send() -> None:
        for queue in queues:
            queue.producer().send_many(BODY for _ in range(messages))

    try:
        return rate(send, queues, messages)
    finally:
        for name in names:
            client.delete_queue(name)


def through_a_topic(client: shardq.Client, messages: int) -> float:
    """Messages a second through four subscriptions of a topic."""
    topic = client.create_topic(f"fan-{os.urandom(4).hex()}")
    queues = [topic.subscribe(f"s{number}").queue for number in range(RECEIVERS)]
    try:
        return rate(lambda: topic.publish_many(BODY for _ in range(messages)), queues, messages)
    finally:
        client.delete_topic(topic.name)


def rate(fill: Callable[[], None], queues: Sequence[shardq.Queue], messages: int) -> float:
    """Deliveries a second, of all queues together."""
    threads = [threading.Thread(target=fill)]
    threads += [threading.Thread(target=receive, args=(queue, messages)) for queue in queues]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(queues) * messages / (time.monotonic() - began)


def receive(queue: shardq.Queue, messages: int) -> None:
    with queue.consumer() as consumer:
        while messages > 0:
            batch = consumer.receive(BATCH, wait=60)
            messages -= len(batch)
            batch.ack()


if __name__ == "__main__":
    main()
