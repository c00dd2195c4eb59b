"""What it costs one consumer to wait on many queues: how late a message comes, and what the processor does meanwhile.

    .venv/bin/python tools/scaling/waiting.py --url sqlite:///waiting.db
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/waiting.py --url {url}
    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/waiting.py --url {url}

Another process sends to the queues now and then, to any of them, and a consumer of 1, 5 and 20 queues receives. They
take turns, some messages each, so that what else the machine does falls on all alike. Then each waits on empty queues.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from many_groups import Meter

import shardq
from tools.bench.stores.latency import moment_of, stamped

NUMBERS = (1, 5, 20)  # queues of a consumer
GAPS = (0.02, 0.12)  # seconds between two messages, at least and at most
SETTLING_SECONDS = 3.0


def send(url: str, names: Sequence[str], count: int, seed: int) -> None:
    """Send so many messages, each to one of the queues and stamped with the moment of its send."""
    chance = random.Random(seed)
    with shardq.connect(url) as client:
        producers = [client.queue(name).producer() for name in names]
        for _ in range(count):
            time.sleep(chance.uniform(*GAPS))
            chance.choice(producers).send(stamped(time.monotonic(), 512))


@contextmanager
def sending(*job: object) -> Iterator[None]:
    """Let another process send meanwhile."""
    sender = multiprocessing.get_context("spawn").Process(target=send, args=job)
    sender.start()
    yield
    sender.join()
    if sender.exitcode:
        raise SystemExit("the sender failed")


def latencies(
    client: shardq.Client, url: str, names: Sequence[str], count: int, seed: int
) -> Iterator[float]:
    """Milliseconds from the send of each message to its receipt."""
    with client.consumer(names) as consumer, sending(url, names, count, seed):
        while count:
            batch = consumer.receive(1, wait=60)
            now = time.monotonic()
            if not batch:
                raise SystemExit(f"{count} messages did not come")
            count -= len(batch)
            yield from (1e3 * (now - moment_of(message.body)) for message in batch)
            batch.ack()


def idle(client: shardq.Client, names: Sequence[str], meter: Meter, seconds: float) -> float:
    """Milliseconds of the processor, of client and server, for each second that a consumer waits in vain."""
    with client.consumer(names) as consumer:
        consumer.receive(1, wait=SETTLING_SECONDS)
        before = meter.seconds()
        consumer.receive(1, wait=seconds)
        return 1e3 * (meter.seconds() - before) / seconds


def main() -> None:
    """Measure, and print a line for each number of queues."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=60, help="in each round")
    parser.add_argument("--idle", type=float, default=15.0, help="seconds of each wait")
    asked = parser.parse_args()
    meter = Meter(asked.url)
    run = os.urandom(3).hex()
    with shardq.connect(asked.url) as client:
        names = {n: [client.create_queue(f"w-{run}-{n}-{each}").name for each in range(n)] for n in NUMBERS}
        late: dict[int, list[float]] = {n: [] for n in NUMBERS}
        busy: dict[int, list[float]] = {n: [] for n in NUMBERS}
        spent: dict[int, list[float]] = {n: [] for n in NUMBERS}
        for number in range(asked.rounds + 1):
            for n in NUMBERS:
                before = meter.seconds()
                found = list(latencies(client, asked.url, names[n], asked.messages, number))
                if number:  # the first round warms up
                    late[n] += found
                    busy[n].append(1e3 * (meter.seconds() - before) / asked.messages)
        for _ in range(3):
            for n in NUMBERS:
                spent[n].append(idle(client, names[n], meter, asked.idle))
    for n in NUMBERS:
        ordered = sorted(late[n])
        most = ordered[len(ordered) * 9 // 10]
        print(
            f"{n:3} queues: {median(ordered):6.1f} ms in the median, {most:6.1f} ms for nine of ten;", end=" "
        )
        print(f"processor {median(busy[n]):5.2f} ms a message, idle {median(spent[n]):5.1f} ms a second")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
