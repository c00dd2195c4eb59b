"""The store of a shop, with something on every page of the dashboard."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import shardq
from shardq.history import Sampler
from shardq.metrics import Metrics
from shardq.tasks import Tasks, chain, chord
from shardq.testing import ManualClock, ManualTimer
from shardq.topics import Filter

__all__ = ["LONG_NAME", "ODD_NAME", "Shop", "open_shop"]

ODD_NAME = "invoices/eu@2026"
LONG_NAME = (
    "export/" + "of-all-customers-who-bought-something-and-their-addresses/" * 2 + "for-the-newsletter"
)
STEP = 15  # seconds between samples of the history
STEPS = 2  # of a time shard
BACKLOG = (90, 40, 0, 25, 0, 160, 310, 520, 770, 260)
"""Orders that are left of each period, the oldest first: a burst that the tills have not worked off."""

LOST = (
    ("ConnectionError: the bank is unreachable", 7),
    ("CardExpired: the card of order 4711 expired in 10/2026", 3),
    ("ValueError: the total is negative", 1),
)


class Shop:
    """What the tests have to know of the shop: ids, and the addresses of its pages."""

    def __init__(self, message: str, letter: str, workflow: str) -> None:
        self.message, self.letter, self.workflow = message, letter, workflow

    def path(self, pattern: str) -> str:
        """Return the address of a page with data, by its pattern."""
        return {
            "/queues/{queue:path}": "/queues/orders",
            "/messages/{queue:path}": "/messages/orders?bodies=true",
            "/message/{id:path}": f"/message/{self.message}?body=true",
            "/dead-letters/{queue:path}": "/dead-letters/orders.dead?bodies=true",
            "/workflows/{id:path}": f"/workflows/{self.workflow}",
        }.get(pattern, pattern)


@contextmanager
def open_shop(url: str, *, open_for: int = 0) -> Iterator[Shop]:
    """Fill a store, and keep its consumers and permits alive within the block.

    It has been open for some minutes before the five that its shards remember.
    """
    with ExitStack() as stack:
        closed = max(0, 600 - open_for * 60)
        begun = time.time_ns() // 1000 - (closed + open_for * 60 + len(BACKLOG) * STEPS * STEP) * 1_000_000
        past = Past(ManualClock(begun), ManualTimer())
        metrics = Metrics()
        clients = [
            stack.enter_context(shardq.connect(url, clock=past.clock, observer=metrics)) for _ in range(3)
        ]
        keeper = stack.enter_context(shardq.connect(url, clock=past.clock))
        clients[0].create_queue("orders", max_deliveries=3, visibility_timeout=900, events=86_400)
        tills = [each.queue("orders") for each in clients]  # each client sends to a shard of its own
        with Sampler(keeper, measures=metrics.measures, timer=past.timer) as sampler:
            _make_letters(tills[0])
            gone = tills[0].consumer(name="till-3", visibility_timeout=1_700)
            tills[0].producer().send_many(_order(number) for number in range(5))
            gone.receive(5, wait=0)  # and was never heard of again
            past.clock.advance(closed)
            past.timer.advance(closed)
            for step in range(open_for * 60 // STEP):
                _trade(tills[0], arriving=int(30 + 20 * math.sin(step / 16) + step % 5), served=34)
                past.go_on(sampler)
            for count in BACKLOG:
                for part, till in enumerate(tills):
                    till.producer().send_many(
                        [_order(number) for number in range(count * (part + 1) // 6)],
                        headers={
                            "kind": "order",
                            "shop": "Zürich",
                            "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736",
                        },
                    )
                for _ in range(STEPS):
                    past.go_on(sampler)
        client = stack.enter_context(shardq.connect(url))
        queue = client.queue("orders")
        for name in ("till-1", "till-2"):
            stack.enter_context(queue.consumer(name=name)).receive(20, wait=0)
        with queue.producer() as producer:
            producer.send_many([_order(number) for number in range(12)], delay=3_600)
            producer.send_many([_order(number) for number in range(9)], group="customer-7")
            message = producer.send(
                _order(4711),
                headers={"kind": "order", "shop": "Zürich"},
                group="customer-8",
                priority=7,
                ttl=86_400,
            )
        _make_others(client, stack)
        workflow = _run_tasks(client)
        letter = next(iter(client.queue("orders.dead").peek(1))).id
        yield Shop(message, letter, workflow)


class Past(NamedTuple):
    """A time that was, by the clock of the store and by that of the process."""

    clock: ManualClock
    timer: ManualTimer

    def go_on(self, sampler: Sampler) -> None:
        """Let the time of a sample pass, and take it."""
        self.clock.advance(STEP)
        self.timer.advance(STEP)
        sampler.step()


def _trade(till: shardq.Queue, *, arriving: int, served: int) -> None:
    till.producer().send_many([_order(number) for number in range(arriving)])
    with till.consumer() as consumer:
        consumer.receive(served, wait=0).ack()


def _order(number: int) -> bytes:
    lines = [{"article": f"tea-{number % 7}", "count": number % 3 + 1, "price": 4.5}]
    return json.dumps(
        {"order": number, "customer": {"id": number % 50, "name": "Ada"}, "lines": lines}
    ).encode()


def _make_letters(orders: shardq.Queue) -> None:
    with orders.producer() as producer, orders.consumer(name="till-0") as consumer:
        for reason, count in LOST:
            producer.send_many([_order(number) for number in range(count)])
            left = count
            while left:
                batch = consumer.receive(left, wait=0)
                left -= len(batch)
                batch.dead_letter(reason)


def _make_others(client: shardq.Client, stack: ExitStack) -> None:
    """Make the other queues, and what belongs to queues."""
    mail = client.create_queue("mail", max_in_flight=50, rate_limit="20/s", max_messages=20_000)
    mail.producer().send_many([b"dear customer"] * 12_345)
    client.create_queue("thumbnails", shards=4).pause()
    client.create_queue("archive", shards=2, time_shards=2)
    for name in (ODD_NAME, LONG_NAME):
        client.create_queue(name, shards=2, time_shards=2).producer().send(
            b"\xff\x00 no text", headers={"n": 1}
        )
    client.create_queue("reports", shards=1, time_shards=2)
    client.schedules.create("nightly", queue="reports", cron="30 2 * * *", time_zone="Europe/Berlin")
    client.schedules.create("poll-the-bank", queue="orders", every=90, overlap="skip")
    client.schedules.create("stocktaking", queue="reports", cron="0 6 1 1 *")
    client.schedules.pause("stocktaking")
    news = client.create_topic("news", retention=86_400)
    news.subscribe("archive")
    news.subscribe("alerts", filter=Filter.of("orders.>", headers={"total": {">=": 100}}))
    news.publish_many([b"order 7"] * 40, subject="orders.7.created", headers={"total": 120})
    client.create_topic("unread")
    smtp = client.semaphore("smtp", permits=16)
    for _ in range(3):
        stack.enter_context(smtp.acquire(timeout=0))


def _run_tasks(client: shardq.Client) -> str:
    """Run some workflows and leave some tasks. Returns the id of a workflow."""
    tasks = Tasks()
    tasks.bind(client)

    @tasks.task(queue="pictures")
    def resize(name: str) -> str:
        return name

    @tasks.task(queue="pictures")
    def album(names: list[str]) -> int:
        return len(names)

    @tasks.task(queue="pictures", retry=1)
    def upload(name: object) -> None:
        raise ConnectionError(f"no space left for {name}")

    shown = chord([resize.signature(f"{number}.png") for number in range(4)], album.then()).send(name="album")
    chain(resize.signature("cover.png"), upload.then()).send(name="publish")
    upload.send("logo.png")
    with suppress(ConnectionError):
        tasks.drain()
    chord([resize.signature(f"new-{number}.png") for number in range(3)], album.then()).send(name="album")
    for number in range(3):
        resize.send(f"later-{number}.png")
    return shown.id.partition("#")[0]
