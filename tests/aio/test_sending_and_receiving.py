"""The asyncio client does what the sync client does."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

import shardq
import shardq.aio
from shardq.testing.seam import claims_of, sync_of


def bundle(message_id: str) -> str:
    return message_id.rpartition(":")[0]


def test_sends_of_tasks_in_one_turn_are_one_bundle_and_each_gets_its_own_id(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        async with queue.producer() as producer:
            ids = await asyncio.gather(*[producer.send(b"%d" % number) for number in range(100)])
        assert len(set(ids)) == 100
        assert len({bundle(each) for each in ids}) == 1
        for number in (0, 57, 99):
            assert (await queue.get(ids[number])).body == b"%d" % number

    run(main)


def test_sends_of_one_task_after_the_other_keep_their_order(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", shards=4)
        producer = queue.producer(bundle_messages=7)
        await asyncio.gather(*[producer.send(b"%d" % number, group="one") for number in range(50)])
        async with queue.consumer() as consumer:
            bodies = [message.body async for message in each_acked(consumer)]
        assert bodies == [b"%d" % number for number in range(50)]

    run(main)


async def each_acked(consumer: shardq.aio.Consumer) -> AsyncIterator[shardq.aio.Message]:
    async for message in consumer.messages(wait=0):
        yield message
        await message.ack()


def test_a_producer_with_linger_waits_for_sends_of_later_turns(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        producer = queue.producer(linger=0.3)
        first = asyncio.ensure_future(producer.send(b"1"))
        for _ in range(10):
            await asyncio.sleep(0)
        second = await producer.send(b"2")
        assert bundle(await first) == bundle(second)

    run(main)


def test_the_error_of_one_send_goes_to_its_task_alone(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", max_message_bytes=1_000)
        producer = queue.producer()
        sent = await asyncio.gather(
            producer.send(b"good"),
            producer.send(b"x" * 2_000),
            producer.send("no bytes"),
            producer.send(b"good", priority=11),
            producer.send(b"good"),
            return_exceptions=True,
        )
        assert [type(each).__name__ for each in sent] == [
            "str",
            "MessageTooLarge",
            "InvalidMessage",
            "InvalidMessage",
            "str",
        ]
        assert (await queue.counts()).ready == 2

    run(main)


def test_keys_and_options_of_sends_are_those_of_the_sync_client(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        producer = queue.producer(codec=shardq.JSON)
        first, second = await asyncio.gather(
            producer.send(1, dedupe_key="a"), producer.send(2, dedupe_key="a")
        )
        assert first == second
        key = await producer.send({"a": 1}, unique_key="k", headers={"h": "v"}, priority=2)
        with pytest.raises(shardq.UniqueKeyTaken):
            await producer.send(3, unique_key="k", on_conflict="raise")
        with pytest.raises(shardq.InvalidMessage, match="further options"):
            await producer.send(shardq.OutgoingMessage(body=1), priority=3)
        found = await queue.get(unique_key="k", codec=shardq.JSON)
        assert (found.id, found.body, found.headers, found.priority) == (key, {"a": 1}, {"h": "v"}, 2)

    run(main)


def test_many_messages_come_from_an_iterable_or_an_async_iterable(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")

        async def bodies() -> AsyncIterator[bytes]:
            for number in range(1_200):
                if number % 300 == 0:
                    await asyncio.sleep(0)
                yield b"%d" % number

        async with queue.producer() as producer:
            assert len(await producer.send_many(bodies())) == 1_200
            assert len(await producer.send_many(b"%d" % number for number in range(700))) == 700
            assert list(await producer.send_many(())) == []
        assert (await queue.counts()).ready == 1_900

    run(main)


def test_an_error_of_an_async_iterable_is_raised_and_tells_what_is_stored(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")

        async def bodies() -> AsyncIterator[bytes]:
            for _ in range(600):
                yield b"x"
            raise ZeroDivisionError

        with pytest.raises(shardq.PartialSend) as caught:
            await queue.producer().send_many(bodies())
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert (await queue.counts()).ready == len(caught.value.stored) == 500

    run(main)


def test_batches_are_received_and_acked_until_nothing_is_due(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 1_200)
        sizes = []
        async with queue.consumer(name="me") as consumer:
            assert consumer.name == "me"
            async for batch in consumer.batches(500, wait=0):
                sizes.append(len(batch))
                assert batch.queue == "jobs"
                assert batch.lease_until is not None
                assert batch.bodies == [message.body for message in batch]
                await batch.ack()
        assert sum(sizes) == 1_200
        assert max(sizes) == 500
        assert (await queue.counts()).ready == 0

    run(main)


def test_messages_that_were_claimed_and_not_handed_out_are_released_uncounted(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 10)
        async with queue.consumer() as consumer:
            async with aclosing(consumer.messages(limit=10)) as messages:
                async for message in messages:
                    await message.ack()
                    break
            assert (await queue.counts()).ready == 9
            batch = await consumer.receive(10)
            assert {message.deliveries for message in batch} == {1}

    run(main)


def test_every_way_to_settle_a_message_is_that_of_the_sync_client(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", keep_results=True, history_retention=600)
        await client.create_queue("others")
        await queue.producer().send_many([b"%d" % number for number in range(8)])
        consumer = queue.consumer()
        batch = await consumer.receive(8)
        acked, released, forwarded, dead, extended, by_receipt, *rest = batch
        await acked.ack(result=b"done")
        assert acked.settled
        assert not await acked.lost()
        await released.release(delay=60)
        assert released.released
        await forwarded.forward("others")
        await dead.dead_letter("broken")
        await extended.extend(600)
        assert not await extended.last_delivery()
        await queue.ack([by_receipt.receipt])
        await batch.part(rest).ack(results={rest[0]: b"0"})
        await batch.part([extended]).release(count=False)
        assert [each.result async for each in queue.history() if each.result] == [b"done", b"0"]
        counts = await queue.counts()
        assert (counts.ready, counts.delayed, counts.in_flight) == (1, 1, 0)
        assert (await (await client.queue("jobs.dead")).counts()).ready == 1
        assert (await (await client.queue("others")).counts()).ready == 1
        with pytest.raises(shardq.InvalidSetting):
            batch.part([(await consumer.receive(1))[0]])

    run(main)


def test_an_ack_that_comes_too_late_fails_alone(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 4)
        first, second, third, fourth = await queue.consumer().receive(4)
        await second.release(delay=60)
        acked = await asyncio.gather(
            first.ack(), second.ack(), third.ack(), third.ack(), return_exceptions=True
        )
        assert [type(each) for each in acked] == [type(None), shardq.LeaseLost, type(None), type(None)]
        assert len(acked[1].messages) == 1
        assert first.settled
        assert third.settled
        assert not fourth.settled
        assert (await queue.counts()).in_flight == 1

    run(main)


def test_acks_of_messages_of_several_queues_in_one_turn_are_carried_out(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        for name in ("a", "b"):
            await (await client.create_queue(name)).producer().send_many([b"x"] * 3)
        consumer = await client.consumer(["a", "b"])
        batches = [batch async for batch in consumer.batches(2, wait=0)]
        assert {batch.queue for batch in batches} == {"a", "b"}
        await asyncio.gather(*[message.ack() for batch in batches for message in batch])
        for name in ("a", "b"):
            counts = await (await client.queue(name)).counts()
            assert (counts.ready, counts.in_flight) == (0, 0)

    run(main)


def test_what_was_settled_is_freed_at_once_without_the_collector_of_cycles(url: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(url, threads=1) as client:
            queue = await client.create_queue("jobs")
            await queue.producer().send_many([b"x"] * 2)
            consumer = queue.consumer()
            batch = await consumer.receive(2)
            held = weakref.ref(claims_of(sync_of(batch))[0])
            await batch[0].ack()
            await batch.ack()
            del batch
            await queue.counts()  # the thread has left the calls before
            assert held() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_a_pop_acks_what_it_returns(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"1", b"2", b"3"])
        consumer = queue.consumer()
        assert (await consumer.pop()).body == b"1"
        assert [message.body for message in await consumer.pop_many(5)] == [b"2", b"3"]
        assert await consumer.pop() is None
        assert (await queue.counts()).in_flight == 0

    run(main)


def test_a_queue_is_read_and_changed_as_by_the_sync_client(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", events=600)
        assert await client.queues() == ("jobs", "jobs.dead")
        assert await client.exists("jobs")
        sent = await queue.producer().send(b"x")
        assert [each.id for each in await queue.peek()] == [sent]
        await queue.alter(visibility_timeout=7)
        assert (await queue.settings()).visibility_timeout == 7
        assert len(await queue.trace(sent)) >= 1
        await queue.pause(delivery=False, sends=True)
        with pytest.raises(shardq.QueuePaused):
            await queue.producer().send(b"x")
        await queue.resume()
        assert await queue.remove(sent)
        assert await queue.purge() == 0
        await client.delete_queue("jobs")
        with pytest.raises(shardq.QueueNotFound):
            await client.queue("jobs")

    run(main)


def test_large_bodies_are_sent_and_read_bit_by_bit(run) -> None:
    content = b"0123456789" * 200_000

    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("films")
        await queue.producer().send_stream(io.BytesIO(content))
        message = (await queue.consumer().receive())[0]
        assert message.large is not None
        reader = await message.open()
        assert await reader.read(10) == content[:10]
        assert b"".join([part async for part in reader]) == content[10:]

    run(main)


def test_topics_and_schedules_are_those_of_the_sync_client(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        topic = await client.create_topic("news")
        mail = await topic.subscribe("mail", filter="weather.*")
        await topic.publish(b"rain", subject="weather.oslo")
        await topic.publish_many([b"goal"], subject="sports.oslo")
        async with mail.consumer() as consumer:
            assert (await consumer.receive(10, wait=5)).bodies == [b"rain"]
        assert await client.topics() == ("news",)
        assert await topic.subscriptions() == ("mail",)
        await client.create_queue("reports")
        made = await client.schedules.create("nightly", queue="reports", cron="30 2 * * *")
        assert [each.id for each in await client.schedules.list()] == [made.id]
        assert (await client.schedules.alter("nightly", cron="@daily")).cron == "@daily"
        await client.schedules.delete("nightly")

    run(main)


def test_a_semaphore_has_no_more_holders_than_permits(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        semaphore = await client.semaphore("smtp", permits=2)
        holders = most = 0

        async def hold() -> None:
            nonlocal holders, most
            async with semaphore as permit:
                holders += 1
                most = max(most, holders)
                assert not await permit.lost()
                await asyncio.sleep(0.001)
                holders -= 1

        await asyncio.gather(*[hold() for _ in range(20)])
        assert most == 2
        permits = [await semaphore.acquire(0), await semaphore.acquire(1)]
        with pytest.raises(shardq.PermitTimeout):
            await semaphore.acquire(0.05)
        waiting = asyncio.ensure_future(semaphore.acquire())
        await asyncio.sleep(0)
        await permits[0].release()
        await (await waiting).release()
        await permits[1].release()
        assert (await semaphore.state()).held == 0

    run(main)


def test_messages_can_be_sent_on_while_they_are_received_with_one_thread(url: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(url, threads=1) as client:
            source, target = await client.create_queue("a"), await client.create_queue("b")
            await source.producer().send_many([b"%d" % number for number in range(1_200)])
            consumer = source.consumer()

            async def received() -> AsyncIterator[bytes]:
                async for message in consumer.messages(wait=0, limit=100):
                    yield message.body

            assert len(await target.producer().send_many(received())) == 1_200
            assert (await target.counts()).ready == 1_200

    asyncio.run(main())


def test_async_iterables_that_wait_occupy_no_threads(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        producer, go_on, waiting = queue.producer(bundle_messages=2), asyncio.Event(), 0

        async def bodies() -> AsyncIterator[bytes]:
            nonlocal waiting
            for _ in range(3):
                yield b"x"
            waiting += 1
            await go_on.wait()
            yield b"y"

        sending = [asyncio.ensure_future(producer.send_many(bodies())) for _ in range(100)]
        while waiting < 100:
            await asyncio.sleep(0.01)
        assert (await queue.counts()).ready == 200
        names = [thread.name for thread in threading.enumerate()]
        assert sum(name.startswith("shardq-aio") for name in names) <= 64
        go_on.set()
        assert [len(ids) for ids in await asyncio.gather(*sending)] == [4] * 100
        assert (await queue.counts()).ready == 400

    run(main)


def test_the_place_of_a_refused_message_is_that_in_the_whole_async_iterable(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")

        async def bodies() -> AsyncIterator[object]:
            for _ in range(5):
                yield b"x"
            yield "no bytes"

        with pytest.raises(shardq.PartialSend, match=r"^4 messages are stored.*bodies\[5\]") as caught:
            await queue.producer(bundle_messages=2).send_many(bodies())
        assert (len(caught.value.stored), list(caught.value.positions)) == (4, [4, 5])

    run(main)


def test_an_iterable_that_has_ended_is_not_read_again_and_its_error_comes_after_what_it_gave(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        for body in (b"one", b"two", None):
            coming.put_nowait(body)

        class Coming:
            def __aiter__(self) -> Coming:
                return self

            async def __anext__(self) -> bytes:
                body = await coming.get()
                if body is None:
                    raise StopAsyncIteration
                return body

        async with asyncio.timeout(60):
            assert len(await queue.producer().send_many(Coming())) == 2

        async def broken() -> AsyncIterator[bytes]:
            for number in range(700):
                yield b"%d" % number
            raise ZeroDivisionError

        with pytest.raises(shardq.PartialSend) as caught:
            await queue.producer().send_many(broken())
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert len(caught.value.unsent) == 200
        assert (await queue.counts()).ready == 2 + 500

    run(main)
