"""Sends and acks within a transaction of the application on an asyncio driver: with its commit, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import shardq  # noqa: E402
import shardq.aio  # noqa: E402

pytestmark = pytest.mark.server

Main = Callable[[shardq.aio.Client, shardq.aio.Queue, Any], Coroutine[Any, Any, None]]


@pytest.fixture
def run(postgresql_url: str) -> Callable[[Main], None]:
    """Runs a coroutine with a client, a queue and a connection of the application, in a loop of its own."""

    def run_main(main: Main) -> None:
        async def connected() -> None:
            async with (
                shardq.aio.connect(postgresql_url, retry_seconds=1) as client,
                await psycopg.AsyncConnection.connect(postgresql_url) as connection,
            ):
                queue = await client.create_queue(f"t{os.urandom(5).hex()}", shards=2, time_shards=1)
                try:
                    await asyncio.wait_for(main(client, queue, connection), 60)
                finally:
                    await connection.rollback()
                    await client.delete_queue(queue.name)

        asyncio.run(connected())

    return run_main


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_what_is_sent_and_acked_stands_or_falls_with_the_transaction(run, commits: bool) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        await queue.producer().send(b"before")
        (held,) = await queue.consumer().receive()
        async with client.transaction(connection=connection) as within:
            inner = await within.queue(queue.name)
            producer = inner.producer()
            sent = await asyncio.gather(
                *[producer.send(b"%d" % number) for number in range(20)],
                producer.send(b"keyed", dedupe_key="d"),
                producer.send(b"first", group="g"),
            )
            assert len(await producer.send_many([b"x"] * 600)) == 600

            async def bodies() -> AsyncIterator[bytes]:
                for number in range(3):
                    await producer.send(b"within")
                    yield b"%d" % number

            assert len(await producer.send_many(bodies())) == 3
            await inner.ack([held.receipt])
            await connection.execute("SELECT 1")  # of the application, between them
            assert (await queue.counts()).ready == 0
        assert len(set(sent)) == 22
        await (connection.commit() if commits else connection.rollback())
        counts = await queue.counts()
        assert (counts.ready, counts.in_flight) == ((628, 0) if commits else (0, 1))

    run(main)


def test_nothing_is_done_after_the_block(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        async with client.transaction(connection=connection) as within:
            producer = (await within.queue(queue.name)).producer()
            await producer.send(b"x")
        with pytest.raises(shardq.Closed, match=r"or client\.transaction\(\)"):
            await producer.send(b"after the block")
        await connection.commit()
        assert (await queue.counts()).ready == 1

    run(main)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_no_statement_follows_an_end_of_the_transaction_that_comes_at_any_moment(run, ends: str) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        for turns in range(0, 40, 3):
            async with client.transaction(connection=connection) as within:
                producer = (await within.queue(queue.name)).producer()
                sending = [
                    asyncio.ensure_future(producer.send(b"x", dedupe_key=f"{turns}.{each}"))
                    for each in range(3)
                ]
                for _ in range(turns):
                    await asyncio.sleep(0)
                await getattr(connection, ends)()
                await asyncio.wait(sending)
                assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                with pytest.raises(shardq.ShardqError):
                    await producer.send(b"later")
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if ends == "rollback":
            assert (await queue.counts()).ready == 0

    run(main)


def test_no_statement_comes_between_one_of_the_application_and_the_end_that_waits_behind_it(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        for turns in range(60):
            async with client.transaction(connection=connection) as within:
                producer = (await within.queue(queue.name)).producer()
                beside = [asyncio.ensure_future(producer.send(b"x", dedupe_key=f"{turns}"))]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for call in (lambda: connection.execute("SELECT 1"), connection.commit):
                    beside.append(asyncio.ensure_future(call()))
                    for _ in range(3):
                        await asyncio.sleep(0)
                await asyncio.wait(beside)
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    run(main)


def test_a_commit_between_its_statements_stores_no_part_of_a_request(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        wait, left, commits = connection.wait, -1, list[asyncio.Future[None]]()

        async def wait_and_commit(*args: Any, **options: Any) -> Any:
            """Wait for an answer of the server. Another task commits after some of them."""
            nonlocal left
            answer = await wait(*args, **options)
            left -= 1
            if left == 0:
                commits.append(asyncio.ensure_future(connection.commit()))
            return answer

        connection.wait = wait_and_commit
        for requests in range(1, 12):
            async with client.transaction(connection=connection) as within:
                producer = (await within.queue(queue.name)).producer()
                left = requests
                sending = asyncio.ensure_future(producer.send(b"x", group=f"{requests}"))
                await asyncio.wait([sending])
                await asyncio.gather(*commits)
            left = -1
            await connection.rollback()
        stored = (await queue.counts()).ready
        assert len(await queue.consumer().receive(100)) == stored

    run(main)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_cancelled_send_leaves_no_statement_behind_the_rollback(
    run, postgresql_url: str, times: int
) -> None:
    async def use(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        async with connection.transaction(), client.transaction(connection=connection) as within:
            producer = (await within.queue(queue.name)).producer()
            while True:
                await producer.send(b"x", dedupe_key=os.urandom(5).hex())

    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, _: Any) -> None:
        for turns in range(0, 40, 3):
            async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
                using = asyncio.ensure_future(use(client, queue, connection))
                await asyncio.sleep(0.001 * turns)
                for _ in range(times):
                    using.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await using
                await asyncio.sleep(0.005)
                # The driver closes a connection whose first statement is cancelled.
                assert connection.closed or (
                    connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                )
        assert (await queue.counts()).ready == 0

    run(main)


def test_a_connection_in_no_transaction_or_of_another_kind_is_refused(run, postgresql_url: str) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        with psycopg.connect(postgresql_url) as sync, pytest.raises(shardq.InvalidSetting, match="AsyncConn"):
            async with client.transaction(connection=sync):
                pass
        await connection.set_autocommit(True)
        with pytest.raises(shardq.InvalidSetting, match="no transaction"):
            async with client.transaction(connection=connection):
                pass
        with shardq.connect(postgresql_url) as other, pytest.raises(shardq.InvalidSetting, match="psycopg 3"):
            other.transaction(connection=connection)

    run(main)


def test_a_call_within_a_stream_of_the_application_can_be_cancelled(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        async with client.transaction(connection=connection) as within:
            inner = await within.queue(queue.name)
            producer = inner.producer()
            calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: producer.send(b"x"),
                lambda: producer.send_many([b"x"]),
                lambda: inner.ack([]),
                lambda: client.transaction(connection=connection).__aenter__(),
            ]
            async for _ in connection.cursor().stream("SELECT generate_series(1, 2)"):
                for call in calls:  # the driver holds its lock until the end of the stream
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0):
                            await call()
            await producer.send(b"after the stream")
        await connection.commit()
        assert (await queue.counts()).ready == 1

    run(main)


def test_a_block_ends_within_a_stream_of_the_application(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        async with client.transaction(connection=connection) as within:
            producer = (await within.queue(queue.name)).producer()
            stream = connection.cursor().stream("SELECT generate_series(1, 2)")
            await anext(stream)
            sending = asyncio.ensure_future(producer.send(b"x"))
            await asyncio.sleep(0)
        await stream.aclose()
        with pytest.raises(shardq.Closed):
            await sending

    run(main)


def test_a_connection_in_pipeline_mode_is_refused_and_nothing_is_sent(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        async with connection.pipeline():
            with pytest.raises(shardq.InvalidSetting, match="pipeline mode"):
                async with client.transaction(connection=connection):
                    pass
        async with client.transaction(connection=connection) as within:
            producer = (await within.queue(queue.name)).producer()
            async with connection.pipeline():
                with pytest.raises(shardq.InvalidSetting, match="pipeline mode"):
                    await producer.send(b"x")
            await producer.send(b"after it")
        await connection.commit()
        assert (await queue.counts()).ready == 1

    run(main)


def test_a_close_within_the_block_lets_end_what_has_begun(run) -> None:
    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        async with client.transaction(connection=connection) as within:
            producer = (await within.queue(queue.name)).producer()
            sending = [
                asyncio.ensure_future(producer.send(b"x", unique_key=f"{number}")) for number in range(5)
            ]
            await asyncio.sleep(0)
            await asyncio.gather(within.close(), within.close())
            assert all(each.done() for each in sending)
            with pytest.raises(shardq.Closed):
                await producer.send(b"later")
        await connection.commit()
        assert (await queue.counts()).ready == 5

    run(main)


def test_a_session_of_sqlalchemy_leads_to_the_connection_of_the_driver(run, postgresql_url: str) -> None:
    pytest.importorskip("greenlet")
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")

    async def main(client: shardq.aio.Client, queue: shardq.aio.Queue, connection: Any) -> None:
        engine = sqlalchemy.create_async_engine(
            postgresql_url.replace("postgresql://", "postgresql+psycopg://")
        )
        try:
            async with sqlalchemy.AsyncSession(engine) as session:
                for ends in (session.rollback, session.commit):
                    async with client.transaction(connection=session) as within:
                        await (await within.queue(queue.name)).producer().send(b"x")
                    await ends()
            async with engine.begin() as begun, client.transaction(connection=begun) as within:
                await (await within.queue(queue.name)).producer().send(b"x")
            assert (await queue.counts()).ready == 2
        finally:
            await engine.dispose()

    run(main)
