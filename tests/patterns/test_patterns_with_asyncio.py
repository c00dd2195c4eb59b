"""Coroutines receive from patterns, and select and edit messages."""

from __future__ import annotations

import asyncio

import shardq
import shardq.aio


def test_a_coroutine_receives_from_all_queues_that_match(url: str) -> None:
    async def run() -> list[bytes]:
        async with shardq.aio.connect(url) as client:
            for name in ("mail/a", "mail/b", "orders"):
                queue = await client.create_queue(name)
                await queue.producer().send(name.encode())
            bodies = []
            async with await client.consumer(["mail/*"]) as consumer:
                for _ in range(2):
                    batch = await consumer.receive(10, wait=10)
                    bodies += batch.bodies
                    await batch.ack()
            return sorted(bodies)

    assert asyncio.run(run()) == [b"mail/a", b"mail/b"]


def test_a_coroutine_selects_and_edits_messages(url: str) -> None:
    async def run() -> list[bytes]:
        async with shardq.aio.connect(url) as client:
            queue = await client.create_queue("orders")
            sent = await queue.producer().send(b"old", headers={"tenant": "acme"})
            await queue.edit(sent, body=b"new")
            wanted = shardq.MessageFilter(headers={"tenant": "acme"})
            found = [message.body async for message in queue.select(wanted)]
            assert await queue.remove_where(wanted) == 1
            return found

    assert asyncio.run(run()) == [b"new"]
