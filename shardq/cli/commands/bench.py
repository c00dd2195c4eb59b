"""``shardq bench``: the rates and the latency of a store, measured through the public API."""

from __future__ import annotations

import secrets
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
import msgspec

import shardq
from shardq.cli.command import ExampleCommand, json_option
from shardq.cli.printing import many, print_json, print_line
from shardq.storage.opening import HasUrl, check_between_processes
from shardq.worker.child_processes import ChildProcesses, Parent

__all__ = ["Load", "Measured", "bench", "measure"]

LEASE = 600.0  # seconds: nothing is delivered twice, however slow the machine is
TIME_SHARDS = 2
PATIENCE = 1.0  # seconds without a message after which a consumer ends; not in the figures
SILENCE = 30.0  # seconds without a message after which the latency is given up
RATE, COUNT = 200.0, 400  # messages a second, and in all, of which the latency is measured
_STAMP = struct.Struct(">d")

Command = TypeVar("Command", bound=Callable[..., object])


class Load(HasUrl, frozen=True, kw_only=True):
    """The work of a benchmark. Sizes are bytes."""

    url: str
    queue: str
    messages: int
    size: int
    producers: int
    consumers: int
    batch: int


class Span(msgspec.Struct, frozen=True):
    """The time in which a process worked, by the clock that all processes share, and its number of messages."""

    began: float
    ended: float
    messages: int


class Measured(msgspec.Struct, frozen=True):
    """The result of a benchmark. Rates are messages per second, latencies milliseconds."""

    store: str
    sent: float
    received: float
    latency_p50: float
    latency_p99: float


def _number(
    name: str, default: int, text: str, *, least: int = 1, most: int | None = None
) -> Callable[[Command], Command]:
    return click.option(name, type=click.IntRange(least, most), default=default, show_default=True, help=text)


@click.command(cls=ExampleCommand, example="shardq bench --messages 20000 --producers 1 --consumers 4")
@click.option("--url", help="The store to measure. Default: a new SQLite file in a temporary folder.")
@_number("--messages", 100_000, "Number of messages.")
@_number("--size", 512, "Bytes of each message.", least=8)
@_number("--producers", 1, "Processes that send.", most=64)
@_number("--consumers", 1, "Processes that receive and ack.", most=64)
@_number("--batch", 500, "Messages received at once.")
@json_option
def bench(url: str | None, as_json: bool, **numbers: int) -> None:
    """Measure messages per second, and latency.

    Producers send all messages in bulk while consumers receive and ack them. Then one producer sends 400 messages one
    by one, 200 a second. Their latency is the time from the call of send to the return of receive in another process.
    Creates a queue named bench-... and deletes it.
    """
    with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder:
        found = measure(url or f"sqlite:///{folder}/queue.db", **numbers)
    if as_json:
        print_json({**msgspec.structs.asdict(found), **numbers})
        return
    for what, value in (
        ("sent", f"{found.sent:,.0f} messages/s, {many(numbers['producers'], 'process')}"),
        ("received and acked", f"{found.received:,.0f} messages/s, {many(numbers['consumers'], 'process')}"),
        ("latency", f"p50 {found.latency_p50:.2f} ms, p99 {found.latency_p99:.2f} ms"),
    ):
        print_line(f"{what:<20}{value}")


def measure(url: str, **numbers: int) -> Measured:
    """Measure a store in a new queue. Raises ProcessFailed, or ClickException if messages are lost."""
    check_between_processes(url, "a benchmark has several")
    load = Load(url=url, queue=f"bench-{secrets.token_hex(4)}", **numbers)
    with shardq.connect(url) as client:
        client.create_queue(
            load.queue, visibility_timeout=LEASE, max_deliveries=None, time_shards=TIME_SHARDS
        )
        try:
            sent, received = _throughput(load)
            seconds = _latencies(load)
        finally:
            client.delete_queue(load.queue)
    total = sum(span.messages for span in received)
    if total != load.messages:
        raise click.ClickException(f"{load.messages} messages were sent and {total} received")
    p50, p99 = (1_000 * seconds[len(seconds) * share // 100] for share in (50, 99))
    return Measured(url.partition(":")[0], _rate(sent), _rate(received), p50, p99)


def _throughput(load: Load) -> tuple[list[Span], list[Span]]:
    with ChildProcesses() as processes:
        for number in range(load.producers):
            processes.start(f"producer {number + 1}", _send, load, number)
        for number in range(load.consumers):
            processes.start(f"consumer {number + 1}", _receive, load)
        spans = processes.results()
    return spans[: load.producers], spans[load.producers :]


def _latencies(load: Load) -> list[float]:
    """Return the seconds from send to receive of each message, the shortest first."""
    with ChildProcesses() as processes:
        processes.start("producer", _send_at_rate, load)
        processes.start("consumer", _receive_stamped, load)
        return sorted(processes.results()[1])


def _rate(spans: Sequence[Span]) -> float:
    began, ended = min(span.began for span in spans), max(span.ended for span in spans)
    return sum(span.messages for span in spans) / (ended - began)


def _send(parent: Parent, load: Load, number: int) -> Span:
    count, body = len(range(number, load.messages, load.producers)), bytes(load.size)
    with shardq.connect(load.url) as client, client.queue(load.queue).producer() as producer:
        began = parent.ready()
        producer.send_many(body for _ in range(count))
        return Span(began, time.monotonic(), count)


def _receive(parent: Parent, load: Load) -> Span:
    with shardq.connect(load.url) as client, client.queue(load.queue).consumer() as consumer:
        began = ended = parent.ready()
        count = 0
        for batch in consumer.batches(load.batch, wait=PATIENCE):
            count += sum(len(body) == load.size for body in batch.bodies)
            batch.ack()
            ended = time.monotonic()
        return Span(began, ended, count)


def _send_at_rate(parent: Parent, load: Load) -> None:
    with shardq.connect(load.url) as client, client.queue(load.queue).producer() as producer:
        began = parent.ready()
        for number in range(COUNT):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            producer.send(_STAMP.pack(time.monotonic()).ljust(load.size, b"\0"))


def _receive_stamped(parent: Parent, load: Load) -> list[float]:
    seconds: list[float] = []
    with shardq.connect(load.url) as client, client.queue(load.queue).consumer() as consumer:
        parent.ready()
        while len(seconds) < COUNT and (batch := consumer.receive(load.batch, wait=SILENCE)):
            now = time.monotonic()
            seconds += [now - _STAMP.unpack_from(body)[0] for body in batch.bodies]
            batch.ack()
    if len(seconds) != COUNT:
        raise RuntimeError(f"{COUNT} messages were sent one by one and {len(seconds)} received")
    return seconds
