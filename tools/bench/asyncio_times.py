"""Measure the asyncio client beside plain `asyncio.to_thread` around the sync client.

    python -m tools.bench.asyncio_times URL [--seconds 2] [--coroutines 1,100,1000] [--rounds 7]

Each coroutine sends one message, receives one and acks it, again and again. It prints the rate, the median latency of a
send and the 99th percentile of the loop's delay.

At a fixed rate of sends the clients take turns with a loop that only sleeps, as one percentile of a second or two says
little: each line is the median of the rounds, and the range of the loop's delay.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import shardq

Step = Callable[[], Awaitable[object]]
TICK_SECONDS = 0.005


class Figures(NamedTuple):
    """Sends per second; the median latency, and the 99th percentile of the loop's delay, in milliseconds."""

    rate: float
    latency: float
    delay: float

    def __str__(self) -> str:
        return f"{self.rate:8,.0f}/s  p50 {self.latency:8.2f} ms  loop p99 {self.delay:6.2f} ms"


async def repeated(steps: list[Step], seconds: float, pause: float = 0.0) -> Figures:
    """Run each step again and again in a coroutine of its own, and describe what was measured.

    With a ``pause`` each step begins so many seconds after the one before it, if that has ended then.
    """
    latencies: list[float] = []
    delays: list[float] = []
    end = time.perf_counter() + max(seconds, 2 * pause)

    async def watch() -> None:
        while time.perf_counter() < end:  # longer, a paced loop would be idle
            began = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            delays.append(time.perf_counter() - began - TICK_SECONDS)

    async def repeat(step: Step) -> None:
        await asyncio.sleep(random.random() * pause)
        while (began := time.perf_counter()) < end:
            await step()
            took = time.perf_counter() - began
            latencies.append(took)
            if pause:
                await asyncio.sleep(max(0.0, min(pause - took, end - began - took)))

    watching = asyncio.ensure_future(watch())
    began = time.perf_counter()
    await asyncio.gather(*map(repeat, steps))
    took = time.perf_counter() - began
    await watching
    return Figures(
        len(latencies) / took,
        statistics.median(latencies) * 1e3,
        statistics.quantiles(delays, n=100)[98] * 1e3,
    )


@contextmanager
def queue_of(url: str) -> Iterator[shardq.Queue]:
    """A queue that is deleted afterwards."""
    with shardq.connect(url) as client:
        name = f"asyncio{os.urandom(3).hex()}"
        yield client.create_queue(name, visibility_timeout=600)
        client.delete_queue(name)


def threads(url: str, count: int, seconds: float) -> str:
    """Send with threads, without asyncio."""
    latencies: list[float] = []
    with queue_of(url) as queue, queue.producer() as producer:
        end = time.perf_counter() + seconds

        def send() -> None:
            while (began := time.perf_counter()) < end:
                producer.send(b"x" * 100)
                latencies.append(time.perf_counter() - began)

        started = [threading.Thread(target=send) for _ in range(count)]
        began = time.perf_counter()
        for each in started:
            each.start()
        for each in started:
            each.join()
        took = time.perf_counter() - began
    return f"{len(latencies) / took:8,.0f}/s  p50 {statistics.median(latencies) * 1e3:8.2f} ms"


async def plain_sends(url: str, count: int, seconds: float, pause: float = 0.0) -> Figures:
    """Send with the sync client in the threads of asyncio."""
    with queue_of(url) as queue, queue.producer() as producer:
        return await repeated([lambda: asyncio.to_thread(producer.send, b"x" * 100)] * count, seconds, pause)


async def plain_acks(url: str, count: int, seconds: float) -> Figures:
    """Receive and ack single messages with the sync client in the threads of asyncio."""
    with queue_of(url) as queue, queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([b"x" * 100] * 50_000)
        turn = threading.Lock()

        def receive() -> shardq.Batch:
            with turn:
                return consumer.receive(1)

        async def step() -> None:
            batch = await asyncio.to_thread(receive)
            await asyncio.to_thread(batch.ack)

        return await repeated([step] * count, seconds)


async def sleeps(_: str, count: int, seconds: float, pause: float = 0.0) -> Figures:
    """Sleep for a millisecond, without a client."""
    return await repeated([lambda: asyncio.sleep(0.001)] * count, seconds, pause)


async def sends(url: str, count: int, seconds: float, pause: float = 0.0) -> Figures:
    """Send with the asyncio client."""
    import shardq.aio  # noqa: PLC0415

    with queue_of(url) as made:
        async with shardq.aio.connect(url) as client:
            producer = (await client.queue(made.name)).producer()
            return await repeated([lambda: producer.send(b"x" * 100)] * count, seconds, pause)


async def acks(url: str, count: int, seconds: float) -> Figures:
    """Receive and ack single messages with the asyncio client."""
    import shardq.aio  # noqa: PLC0415

    with queue_of(url) as made:
        made.producer().send_many([b"x" * 100] * 50_000)
        async with shardq.aio.connect(url) as client:
            consumer = (await client.queue(made.name)).consumer()

            async def step() -> None:
                await (await consumer.receive(1)).ack()

            return await repeated([step] * count, seconds)


async def handlers(url: str, count: int, seconds: float) -> str:
    """Run handlers that sleep for 100 ms, so many at a time."""
    import shardq.aio  # noqa: PLC0415

    done = 0

    async def handler(_: object) -> None:
        nonlocal done
        await asyncio.sleep(0.1)
        done += 1

    with queue_of(url) as made:
        made.producer().send_many([b"x" * 100] * 50_000)
        async with shardq.aio.connect(url) as client:
            began = time.perf_counter()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await shardq.aio.work(await client.queue(made.name), handler, concurrency=count)
            return f"{done / (time.perf_counter() - began):8,.0f}/s"


LOAD = 500  # sends per second that both keep up with
MEASURES = {
    "to_thread send": plain_sends,
    "aio send": sends,
    "to_thread receive, ack": plain_acks,
    "aio receive, ack": acks,
}
PACED = {"sleep": sleeps, "to_thread send": plain_sends, "aio send": sends}


def paced(url: str, count: int, seconds: float, rounds: int) -> Iterator[str]:
    """Make ``LOAD`` calls per second with each client in turn, and describe the rounds of each."""
    found: dict[str, list[Figures]] = {name: [] for name in PACED}
    for _ in range(rounds):
        for name, measure in PACED.items():
            found[name].append(asyncio.run(measure(url, count, seconds, count / LOAD)))
    for name, figures in found.items():
        median = Figures(*map(statistics.median, zip(*figures, strict=True)))
        delays = [each.delay for each in figures]
        yield f"{f'{name}, {LOAD}/s':24} {count:5}  {median} ({min(delays):.2f} to {max(delays):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--coroutines", default="1,100,1000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plain", action="store_true", help="without the asyncio client")
    options = parser.parse_args()
    for count in (1, 16):
        print(f"{'threads send':24} {count:5}  {threads(options.url, count, options.seconds)}", flush=True)
    for name, measure in MEASURES.items():
        if options.plain and name.startswith("aio"):
            continue
        for count in map(int, options.coroutines.split(",")):
            result = asyncio.run(measure(options.url, count, options.seconds))
            print(f"{name:24} {count:5}  {result}", flush=True)
    if not options.plain:
        for count in map(int, options.coroutines.split(",")):
            for line in paced(options.url, count, options.seconds, options.rounds):
                print(line, flush=True)
        print(f"{'handlers of 100 ms':24} {100:5}  {asyncio.run(handlers(options.url, 100, 5.0))}")


if __name__ == "__main__":
    main()
