"""Sends and acks within a transaction of PyMongo's asyncio client: with its commit, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pymongo = pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")

import shardq  # noqa: E402
import shardq.aio  # noqa: E402

pytestmark = pytest.mark.server

Main = Callable[[shardq.aio.Client, shardq.aio.Queue, Any], Coroutine[Any, Any, None]]


@pytest.fixture
def run(replica_set_url: str) -> Callable[[Main], None]:
    """Runs a coroutine with a client, a queue and a session of the application, in a loop of its own."""

    def run_main(main: Main) -> None:
        async def connected() -> None:
            async with (
                shardq.aio.connect(replica_set_url, retry_seconds=1) as client,
                pymongo.AsyncMongoClient(replica_set_url) as app,
                app.start_session() as session,
            ):
                queue = await client.create_queue(f"t{os.urandom(5).hex()}", shards=1, time_shards=1)
                try:
                    await queue.producer().send(b"first")  # its collection is there
                    await queue.consumer().pop()
                    await asyncio.wait_for(main(client, queue, session), 60)
                finally:
                    await client.delete_queue(queue.name)

        asyncio.run(connected())

    return run_main


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_what_is_sent_and_acked_stands_or_falls_with_the_transaction(run, commits: bool) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, session: Any) -> None:
        await queue.producer().send(b"before")
        (held,) = await queue.consumer().receive()

        async def sell(session: Any) -> None:
            async with client.transaction(connection=session) as within:
                inner = await within.queue(queue.name)
                producer = inner.producer()
                await asyncio.gather(*[producer.send(b"%d" % number) for number in range(20)])
                await producer.send_many([b"x"] * 600)
                await inner.ack([held.receipt])
                assert await producer.send(b"keyed", dedupe_key="d") == await producer.send(
                    b"x", dedupe_key="d"
                )
                await producer.send(b"first", group="g")
            assert (await queue.counts()).ready == 0
            with pytest.raises(shardq.Closed):
                await producer.send(b"after the block")
            if not commits:
                await session.abort_transaction()

        await session.with_transaction(sell)
        counts = await queue.counts()
        assert (counts.ready, counts.in_flight) == ((622, 0) if commits else (0, 1))

    run(main)


def test_several_blocks_in_one_transaction_see_what_the_others_have_sent_and_used(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, session: Any) -> None:
        await queue.alter(max_messages=2, history_retention=60)
        await queue.producer().send(b"held")
        (held,) = await queue.consumer().receive()

        async def send(body: bytes, **options: Any) -> str:
            async with client.transaction(connection=session) as within:
                return await (await within.queue(queue.name)).producer().send(body, **options)

        async def sell(session: Any) -> None:
            assert len({await send(b"one", unique_key="k") for _ in range(3)}) == 1
            async with client.transaction(connection=session) as within:
                await (await within.queue(queue.name)).ack([held.receipt])
            await send(b"two")
            with pytest.raises(shardq.QueueFull):
                await send(b"three")

        await session.with_transaction(sell)
        assert [message.body for message in await queue.consumer().receive(10)] == [b"one", b"two"]

    run(main)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_cancelled_send_leaves_nothing_behind_the_rollback(run, times: int) -> None:
    async def use(client: shardq.aio.Client, queue: shardq.aio.Queue, session: Any) -> None:
        async with await session.start_transaction(), client.transaction(connection=session) as within:
            producer = (await within.queue(queue.name)).producer()
            while True:
                await producer.send_many([b"x"] * 3_000)  # several requests

    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, session: Any) -> None:
        for turns in range(0, 30, 3):
            using = asyncio.ensure_future(use(client, queue, session))
            await asyncio.sleep(0.002 * turns)
            for _ in range(times):
                using.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await using
            assert not session.in_transaction
        assert (await queue.counts()).ready == 0

    run(main)


def test_a_session_without_a_transaction_or_of_another_kind_is_refused(run, replica_set_url: str) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, session: Any) -> None:
        with pytest.raises(shardq.InvalidSetting, match="without a transaction"):
            async with client.transaction(connection=session):
                pass
        with (
            pymongo.MongoClient(replica_set_url) as sync,
            sync.start_session() as other,
            pytest.raises(shardq.InvalidSetting, match="AsyncClientSession"),
        ):
            async with client.transaction(connection=other):
                pass
        with (
            shardq.connect(replica_set_url) as plain,
            pytest.raises(shardq.InvalidSetting, match="a sync client"),
        ):
            plain.transaction(connection=session)

    run(main)
