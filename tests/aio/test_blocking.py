"""No call of the asyncio client blocks the event loop."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

import shardq
import shardq.aio

blockbuster = pytest.importorskip("blockbuster")

# The executor of the standard library waits until a new thread has begun, and its queue has a lock.
STARTS_THREADS = {"submit", "_adjust_thread_count"}


async def everything(client: shardq.aio.Client) -> None:
    """Make calls of each kind."""
    queue = await client.create_queue("jobs", history_retention=600, visibility_timeout=5)
    async with queue.producer() as producer:
        assert all(
            await asyncio.gather(*[producer.send(b"x", dedupe_key=str(number)) for number in range(100)])
        )
        await producer.send(b"x", unique_key="one")
        await producer.send_many([b"x"] * 600)
        await producer.send_stream(io.BytesIO(b"x" * 2_000_000))
    async with queue.consumer(keep_leases=True) as consumer:
        waiting = asyncio.ensure_future(consumer.receive(wait=0.1))
        async for batch in consumer.batches(100, wait=0.1):
            large = batch[0].large is not None
            assert await (await batch[0].open()).read() if large else batch.bodies
            await batch[0].ack()
            await batch.ack()
        await waiting
        assert await consumer.pop(wait=0.05) is None
    assert [each async for each in queue.history()]
    await queue.counts()
    semaphore = await client.semaphore("one", permits=1)
    async with semaphore:
        with pytest.raises(shardq.PermitTimeout):
            await semaphore.acquire(0.05)
    topic = await client.create_topic("news")
    mail = await topic.subscribe("mail")
    await topic.publish(b"rain")
    async with mail.consumer() as consumer:
        await (await consumer.receive(1, wait=5)).ack()

    async def handler(message: shardq.aio.Message) -> None:
        await asyncio.sleep(0)

    await queue.producer().send_many([b"x"] * 50)
    assert await shardq.aio.work(queue, handler, wait=0) == 50


def test_no_call_blocks_the_loop(run: Callable[[Any], Any]) -> None:
    async def main(client: shardq.aio.Client) -> None:
        with blockbuster.blockbuster_ctx() as guard:
            for function in guard.functions.values():
                function.can_block_in("concurrent/futures/thread.py", STARTS_THREADS)
            await everything(client)
            with pytest.raises(blockbuster.BlockingError):
                shardq.connect("sqlite:////nowhere/queue.db").ping()  # what blocks is found

    run(main)
