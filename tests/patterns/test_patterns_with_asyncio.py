"""Coroutines receive from patterns, and select and edit messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

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


def test_coroutines_work_the_messages_of_all_queues_that_match_and_of_no_others(url: str) -> None:
    async def run() -> tuple[list[bytes], tuple[str, ...], int]:
        async with shardq.aio.connect(url) as client:
            for name in ("mail/a", "mail/b", "mail/a.dead", "mail/b/old", "orders"):
                queue = await client.create_queue(name, exist_ok=True)
                await queue.producer().send(name.encode())
            pattern, seen = client.pattern("mail/*"), list[bytes]()

            async def handler(message: shardq.aio.Message) -> None:
                seen.append(message.body)

            assert await shardq.aio.work(pattern, handler, wait=0) == 2
            left = await (await pattern.queue("orders")).counts()
            return sorted(seen), await pattern.names(), left.ready

    assert asyncio.run(run()) == ([b"mail/a", b"mail/b"], ("mail/a", "mail/b"), 1)


def test_the_messages_of_a_queue_that_is_created_later_are_worked(url: str) -> None:
    async def run() -> bytes:
        async with shardq.aio.connect(url) as client:
            stop, seen = asyncio.Event(), list[bytes]()

            async def handler(message: shardq.aio.Message) -> None:
                seen.append(message.body)
                stop.set()

            work = asyncio.ensure_future(shardq.aio.work(client.pattern("mail/*"), handler, stop=stop))
            await asyncio.sleep(0)
            queue = await client.create_queue("mail/new")
            await queue.producer().send(b"late")
            await asyncio.wait_for(work, 60)
            return seen[0]

    assert asyncio.run(run()) == b"late"


def test_a_handler_that_raises_is_retried_by_the_settings_of_the_queue_that_matches(url: str) -> None:
    async def run() -> tuple[int, int]:
        async with shardq.aio.connect(url) as client:
            for name, most in (("mail/a", 1), ("mail/b", 2)):
                queue = await client.create_queue(name, max_deliveries=most, retry_delay=600)
                await queue.producer().send(b"poison")

            async def handler(message: shardq.aio.Message) -> None:
                raise ValueError(message.body)

            assert await shardq.aio.work(client.pattern("mail/*"), handler, wait=0) == 0
            dead, delayed = await client.queue("mail/a.dead"), await client.queue("mail/b")
            return (await dead.counts()).ready, (await delayed.counts()).delayed

    assert asyncio.run(run()) == (1, 1)


def test_the_observer_hears_of_the_queue_of_each_message_that_a_pattern_matches(url: str) -> None:
    class Heard(shardq.Observer):
        def __init__(self) -> None:
            self.handled_in: list[str] = []

        def handled(self, queue: str, outcomes: Mapping[str, int], seconds: Sequence[float]) -> None:
            self.handled_in.append(queue)

    async def run() -> list[str]:
        heard = Heard()
        async with shardq.aio.connect(url, observer=heard) as client:
            for name in ("mail/a", "mail/b"):
                await (await client.create_queue(name)).producer().send(b"dear")

            async def handler(_: shardq.aio.Message) -> None:
                return

            await shardq.aio.work(client.pattern("mail/*"), handler, wait=0)
        return sorted(heard.handled_in)

    assert asyncio.run(run()) == ["mail/a", "mail/b"]
