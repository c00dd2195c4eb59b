"""What each feature costs a message, beside a plain one.

    make bench-features   # on the three stores; writes docs/benchmarks-features.md
    python -m tools.bench.features sqlite:////tmp/costs.db   # on one; prints a table

Each round sends the same bodies through a new queue of every kind, in turn, and receives and acks them. The cost of a
kind is its time divided by that of the plain messages of the same round. With ``--before PYTHON``, an
interpreter that has an older shardq, plain messages of both versions are measured too, each in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec

import shardq

BODY = bytes(512)
GROUPS = 1_000
BATCH = 500
PLAIN, BEFORE, NOW = "plain", "plain, before", "plain, now"


class Times(msgspec.Struct, frozen=True):
    """Seconds for each message that is sent, received and acked: in bulk, and one by one."""

    bulk: float
    single: float


Way = Callable[[Times], float]
WAYS: dict[str, Way] = {"in bulk": lambda each: each.bulk, "one by one": lambda each: each.single}


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a queue, and what the message of a number has beside its body."""

    settings: Mapping[str, Any] = {}
    options: Callable[[int], Mapping[str, Any]] = lambda _: {}
    is_topic: bool = False

    def messages(self, count: int) -> list[Any]:
        """Messages, no two of which have the same key."""
        made = [self.options(number) for number in range(count)]
        return [shardq.OutgoingMessage(body=BODY, **each) if each else BODY for each in made]


KINDS = {
    PLAIN: Kind(),
    "priority": Kind(options=lambda number: {"priority": number % 10}),
    "headers": Kind(options=lambda number: {"headers": {"tenant": "north", "number": number}}),
    "ttl": Kind(options=lambda _: {"ttl": 3_600}),
    "dedupe_key": Kind(options=lambda _: {"dedupe_key": os.urandom(8).hex()}),
    "unique_key": Kind(options=lambda _: {"unique_key": os.urandom(8).hex()}),
    f"group, of {GROUPS:,}": Kind(options=lambda number: {"group": f"customer-{number % GROUPS}"}),
    "rate_limit": Kind(settings={"rate_limit": "1000000/s"}),
    "max_in_flight": Kind(settings={"max_in_flight": 100_000}),
    "max_messages": Kind(settings={"max_messages": 10_000_000}),
    "events": Kind(settings={"events": 3_600.0}),
    "history_retention": Kind(settings={"history_retention": 3_600.0}),
    "a topic with one subscription": Kind(is_topic=True),
}


def measure(client: shardq.Client, kind: Kind, messages: int, singles: int) -> Times:
    """Send, receive and ack in bulk and then one by one, through a queue of its own."""
    bulk, few = kind.messages(messages), kind.messages(singles)
    with place(client, kind) as (send_many, send, queue), queue.consumer() as consumer:
        began = time.perf_counter()
        send_many(bulk)
        receive(consumer, messages, BATCH)
        between = time.perf_counter()
        for each in few:
            send(each)
        receive(consumer, singles, 1)
        ended = time.perf_counter()
    return Times((between - began) / messages, (ended - between) / singles)


@contextmanager
def place(
    client: shardq.Client, kind: Kind
) -> Iterator[tuple[Callable[[Sequence[Any]], object], Callable[[Any], object], shardq.Queue]]:
    """What sends many messages and one, and the queue from which they are received."""
    name = f"cost-{os.urandom(4).hex()}"
    if kind.is_topic:
        topic = client.create_topic(name)
        try:
            yield topic.publish_many, topic.publish, topic.subscribe("all").queue
        finally:
            client.delete_topic(name)
        return
    queue = client.create_queue(name, shards=2, time_shards=4, **kind.settings)
    try:
        with queue.producer() as producer:
            yield producer.send_many, producer.send, queue
    finally:
        client.delete_queue(name)


def receive(consumer: shardq.Consumer, messages: int, at_once: int) -> None:
    """Receive and ack so many messages."""
    while messages > 0:
        batch = consumer.receive(at_once, wait=60)
        if not batch:
            raise SystemExit(f"{messages} messages did not come")
        batch.ack()
        messages -= len(batch)


def measure_elsewhere(url: str, python: str, options: argparse.Namespace) -> Times:
    """Plain messages by the shardq of an interpreter, in a process and a database of its own."""
    suffix = "_now" if python == sys.executable else "_before"
    own = re.sub(r"(\.db|\?|$)", rf"{suffix}\1", url, count=1)
    command = [python, str(Path(__file__).resolve()), own, "--plain"]
    command += ["--messages", str(options.messages), "--singles", str(options.singles)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return msgspec.json.decode(done.stdout, type=Times)


def compare(url: str, options: argparse.Namespace) -> dict[str, list[Times]]:
    """What each kind took in each round; a first round, which warms up, does not count."""
    found: dict[str, list[Times]] = {}
    with shardq.connect(url) as client:
        for number in range(options.rounds + 1):
            order = Random(number).sample(sorted(KINDS), len(KINDS))  # none is always the first
            taken = {name: measure(client, KINDS[name], options.messages, options.singles) for name in order}
            if options.before:
                taken[BEFORE] = measure_elsewhere(url, options.before, options)
                taken[NOW] = measure_elsewhere(url, sys.executable, options)
            for name, times in taken.items() if number else ():
                found.setdefault(name, []).append(times)
            print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
    return found


class Measured(msgspec.Struct, frozen=True):
    """What was measured on a store, by kind."""

    store: str
    times: dict[str, list[Times]]

    def cost(self, kind: str, how: Way, beside: str = PLAIN) -> str:
        """The median of the rounds' ratios, the lowest and the highest in brackets."""
        ratios = [
            how(mine) / how(other) for mine, other in zip(self.times[kind], self.times[beside], strict=True)
        ]
        return f"**{median(ratios):.2f}x** ({min(ratios):.2f} .. {max(ratios):.2f})"

    def rate(self, how: Way) -> str:
        """Plain messages that are sent, received and acked in a second."""
        return f"**{median(1 / how(each) for each in self.times[PLAIN]):,.0f}/s**"


def table(stores: Sequence[Measured]) -> str:
    """A row for each kind, and two columns for each store."""
    columns = [(store, name, how) for store in stores for name, how in WAYS.items()]
    rows = [
        ["", *(f"{store.store}, {name}" for store, name, _ in columns)],
        ["---", *["---:"] * len(columns)],
        [PLAIN, *(store.rate(how) for store, _, how in columns)],
        *([kind, *(store.cost(kind, how) for store, _, how in columns)] for kind in KINDS if kind != PLAIN),
    ]
    if all(BEFORE in store.times for store in stores):
        rows.append([NOW, *(store.cost(NOW, how, BEFORE) for store, _, how in columns)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(stores: Sequence[Measured], options: argparse.Namespace) -> str:
    """docs/benchmarks-features.md."""
    return PAGE.format(
        cpus=os.cpu_count(),
        python=platform.python_version(),
        version=version("shardq"),
        table=table(stores),
        groups=GROUPS,
        before=BEFORE_NOTE if options.before else "",
        rounds=options.rounds,
        messages=options.messages,
        singles=options.singles,
    )


def urls_of_servers(folder: str) -> list[str]:
    """A new SQLite file, and the servers in the environment."""
    servers = [os.environ.get(f"SHARDQ_TEST_{store}_URL") for store in ("CASSANDRA", "MONGODB")]
    return [f"sqlite:///{folder}/costs.db", *(url for url in servers if url)]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="stores; queues are made and deleted there; all that are known"
    )
    parser.add_argument("--messages", type=int, default=10_000, help="in bulk; 10,000")
    parser.add_argument("--singles", type=int, default=200, help="one by one; 200")
    parser.add_argument("--rounds", type=int, default=5, help="5")
    parser.add_argument("--before", metavar="PYTHON", help="an interpreter with an older shardq")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write this page; without, print the table")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        with shardq.connect(options.urls[0]) as client:
            times = measure(client, KINDS[PLAIN], options.messages, options.singles)
        print(msgspec.json.encode(times).decode())
        return
    with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder:
        stores = [
            Measured(STORES[url.partition(":")[0]], compare(url, options))
            for url in options.urls or urls_of_servers(folder)
        ]
    if options.page:
        options.page.write_text(page(stores, options))
    else:
        print(table(stores))


STORES = {"sqlite": "SQLite", "cassandra": "Cassandra", "mongodb": "MongoDB"}
PAGE = """\
# What each feature costs

Made by `make bench-features`; not edited by hand. Measured on {cpus} cores, Linux, CPython {python}, shardq {version}.

In each of {rounds} rounds {messages:,} messages of 512 B are sent in bulk, received by 500 and acked; then {singles:,}
are sent, received and acked one by one. Each kind has a new queue. A cost is the time of a kind divided by that of the
plain messages of the same round: the median, the lowest and the highest in brackets. The first row says how many plain
messages go all the way in a second.

{table}

- `dedupe_key` and `unique_key`: every message has a key of its own.
- Groups: messages of {groups:,} groups in turn.
- The limits are so high that they hold nothing back. What is measured is the counting.
{before}"""
BEFORE_NOTE = """\
- The last row is the time of plain messages, divided by that with the shardq of November 21, 2026, which had no groups,
  unique keys, limits, events and topics.
"""

if __name__ == "__main__":
    main()
