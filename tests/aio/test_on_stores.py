"""The asyncio client waits, settles and cancels on every store."""

from __future__ import annotations

import asyncio

import shardq
import shardq.aio
from tests.aio.cancelling import each_cancelled
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]


def test_tasks_send_wait_for_one_another_and_settle(any_url: str, connect_any, name: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(any_url) as client:
            queue = await client.create_queue(name)
            consumer = queue.consumer()
            waiting = [asyncio.ensure_future(consumer.receive(wait=60)) for _ in range(100)]
            producer = queue.producer()
            ids = await asyncio.gather(*[producer.send(b"x") for _ in range(99)])
            await asyncio.to_thread(connect_any().queue(name).producer().send, b"x")
            batches = await asyncio.gather(*waiting)
            assert {len(batch) for batch in batches} == {1}
            assert {batch[0].id for batch in batches} > set(ids)
            await asyncio.gather(*[batch[0].ack() for batch in batches])
            counts = await queue.counts()
            assert (counts.ready, counts.in_flight) == (0, 0)

    asyncio.run(main())


def test_a_receive_that_is_cancelled_at_any_await_gives_its_claim_back(any_url: str, name: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(any_url) as client:
            queue = await client.create_queue(name)
            await queue.producer().send_many([b"x"] * 3)
            consumer = queue.consumer()
            async for error in each_cancelled(lambda: consumer.receive(3, wait=5), turns=1):
                if error is None:
                    break
                batch = await consumer.receive(3, wait=5)
                assert [message.deliveries for message in batch] == [1, 1, 1]
                await batch.release(count=False)

    asyncio.run(main())


def test_handlers_work_all_messages_of_a_queue(any_url: str, name: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(any_url) as client:
            queue = await client.create_queue(name)
            await queue.producer().send_many([b"%d" % number for number in range(300)])
            seen = set()

            async def handler(message: shardq.aio.Message) -> None:
                await asyncio.sleep(0.001)
                seen.add(message.body)

            assert await shardq.aio.work(queue, handler, concurrency=50, wait=1) == 300
            assert len(seen) == 300
            assert (await queue.counts()).in_flight == 0

    asyncio.run(main())
