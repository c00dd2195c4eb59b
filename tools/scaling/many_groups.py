"""What a claim costs in a queue of many groups, beside one in a queue without groups.

    .venv/bin/python tools/scaling/many_groups.py --url sqlite:///groups.db
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/many_groups.py --url {url}
    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/many_groups.py --url {url}

A million groups go through the queue, and ten thousand of them have a message when it is measured. Through the queue
beside it go as many messages without a group, each sent alone, in turns, and it has as many, in as many shards. Claims
and acks of both are timed in turn, so that what else the machine does falls on both. Each claim is followed by a send
of as many messages, of new groups.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from urllib.parse import urlsplit

import psutil

import shardq
from shardq.base.shard import GROUP_SHARDS

BATCH = 500
AT_ONCE = (1, 10, 100)


class Costs:
    """Milliseconds that something took, by the clock and of processor time of client and server, one for each time."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.clock: list[float] = []
        self.processor: list[float] = []

    def of(self, do: Callable[[], shardq.Batch | None]) -> shardq.Batch | None:
        """Do it and keep what it took."""
        spent, began = self._meter.seconds(), time.perf_counter()
        done = do()
        self.clock.append(1e3 * (time.perf_counter() - began))
        self.processor.append(1e3 * (self._meter.seconds() - spent))
        return done


class Meter:
    """Processor time of this process and of the server at a URL, in seconds."""

    def __init__(self, url: str) -> None:
        port = urlsplit(url).port
        listening = psutil.net_connections("tcp") if port else []
        pids = {
            each.pid for each in listening if each.status == psutil.CONN_LISTEN and each.laddr.port == port
        }
        self.servers = [psutil.Process(pid) for pid in pids if pid]

    def seconds(self) -> float:
        times = [each.cpu_times() for each in self.servers]
        return time.process_time() + float(sum(each.user + each.system for each in times))


def messages(groups: Iterator[int] | None, count: int) -> list[shardq.OutgoingMessage]:
    """So many messages, each of a group that was not there before; or of none."""
    names = itertools.repeat(None, count) if groups is None else itertools.islice(groups, count)
    return [
        shardq.OutgoingMessage(body=b"x", group=None if name is None else f"customer-{name}")
        for name in names
    ]


class Place:
    """A queue whose messages are all of different groups, or of none."""

    def __init__(self, client: shardq.Client, *, grouped: bool) -> None:
        kind = "groups" if grouped else "plain"
        self.queue = client.create_queue(
            f"{kind}-{os.urandom(3).hex()}", shards=GROUP_SHARDS, time_shards=1, max_deliveries=None
        )
        self.producer = self.queue.producer(bundle_messages=1)
        self.consumer = self.queue.consumer()
        self.groups = itertools.count() if grouped else None

    def send(self, count: int) -> None:
        self.producer.send_many(messages(self.groups, count))

    def take(self, count: int) -> None:
        while count:
            batch = self.consumer.receive(min(BATCH, count), wait=60)
            if not batch:
                raise SystemExit(f"{count} messages of queue {self.queue.name} did not come")
            batch.ack()
            count -= len(batch)


def pass_through(places: tuple[Place, Place], count: int) -> None:
    """Send, receive and ack so many messages in both, in turns."""
    while count > 0:
        at_once = min(10 * BATCH, count)
        for place in places:
            place.send(at_once)
            place.take(at_once)
        count -= at_once


def compare(places: tuple[Place, Place], meter: Meter, at_once: int, rounds: int) -> None:
    """Print what claims and acks of so many messages cost in both."""
    costs = [{"claim": Costs(meter), "ack": Costs(meter)} for _ in places]
    for number in range(rounds + 5):
        for place, cost in zip(places, costs, strict=True):
            if number == 5:  # the first ones warm up
                cost.update(claim=Costs(meter), ack=Costs(meter))
            batch = cost["claim"].of(lambda place=place: place.consumer.receive(at_once, wait=60))  # type: ignore[misc]
            assert batch is not None
            cost["ack"].of(batch.ack)
            place.send(len(batch))
    for what in ("claim", "ack"):
        plain, grouped = (cost[what] for cost in costs)
        clock, processor = (
            (median(each.clock) for each in (plain, grouped)),
            (sum(each.processor) / rounds for each in (plain, grouped)),
        )
        for how, (one, other) in (("clock, median", clock), ("processor, mean", processor)):
            ratio = f"{other / one:.2f}x" if one else ""
            print(f"  {what} of {at_once:3}, {how:15} {one:8.2f} ms {other:8.2f} ms {ratio:>7}", flush=True)


def main() -> None:
    """Measure with no groups before, then after all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--groups", type=int, default=1_000_000, help="how many go through the queue")
    parser.add_argument("--waiting", type=int, default=10_000, help="how many have a message")
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    meter = Meter(asked.url)
    with shardq.connect(asked.url) as client:
        places = Place(client, grouped=False), Place(client, grouped=True)
        for place in places:
            place.send(asked.waiting)
        for groups in (0, asked.groups):
            began = time.monotonic()
            pass_through(places, groups)
            took = time.monotonic() - began
            print(
                f"{groups:,} messages went through each in {took:.0f} s, {asked.waiting:,} wait: plain, groups",
                flush=True,
            )
            for process in (*meter.servers, psutil.Process()):
                print(f"  {process.name()}: {process.memory_info().rss >> 20:,} MB of memory")
            for at_once in AT_ONCE:
                compare(places, meter, at_once, asked.rounds if at_once < 100 else asked.rounds // 4)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
