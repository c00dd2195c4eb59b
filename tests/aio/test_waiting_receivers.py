"""Receivers that wait need no threads, and none of them starves."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq.aio.sync_core import NothingYet
from shardq.aio.threads import Threads
from shardq.aio.waiters import Waiters
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.testing import FaultPlan, FaultyStore

RECEIVERS = 1_000


@pytest.mark.parametrize(("consumers", "most"), [(1, 64), (40, 1)])
def test_a_thousand_receivers_wait_and_each_gets_its_message(
    url: str, consumers: int, most: int, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    def threads() -> int:
        return len(begun_threads("shardq-aio"))

    async def main() -> None:
        async with shardq.aio.connect(url, threads=most) as client:
            queue = await client.create_queue("jobs", visibility_timeout=600)
            receiving = [queue.consumer() for _ in range(consumers)]
            got: list[bytes] = []

            async def receive(number: int) -> None:
                batch = await receiving[number % consumers].receive(wait=120)
                got.extend(batch.bodies)
                assert len(batch) == 1
                await batch.ack()

            waiting = [asyncio.ensure_future(receive(number)) for number in range(RECEIVERS)]
            while sum(not each.done() for each in waiting) != RECEIVERS or threads() < 1:
                await asyncio.sleep(0)
            async with queue.producer() as producer:
                await asyncio.gather(*[producer.send(b"%d" % number) for number in range(RECEIVERS)])
            await asyncio.gather(*waiting)
            assert threads() <= most
            assert sorted(got, key=int) == [b"%d" % number for number in range(RECEIVERS)]
            assert (await queue.counts()).in_flight == 0

    asyncio.run(main())


def test_receivers_of_one_consumer_get_messages_in_the_order_in_which_they_came(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        consumer, served = queue.consumer(), []

        async def receive(number: int) -> None:
            await consumer.receive(wait=60)
            served.append(number)

        waiting = []
        for number in range(10):
            waiting.append(asyncio.ensure_future(receive(number)))
            await asyncio.sleep(0)
        for _ in range(10):
            await queue.producer().send(b"x")
        await asyncio.gather(*waiting)
        assert served == list(range(10))

    run(main)


def test_a_receive_that_does_not_wait_passes_those_that_do(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        consumer = queue.consumer()
        waiting = asyncio.ensure_future(consumer.receive(wait=60))
        await asyncio.sleep(0.05)
        assert len(await consumer.receive()) == 0
        assert len(await consumer.receive(wait=0.05)) == 0
        assert not waiting.done()
        consumer.stop()
        assert len(await waiting) == 0
        assert [batch async for batch in consumer.batches(10)] == []

    run(main)


def test_a_message_that_becomes_due_ends_a_wait(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send(b"later", delay=0.2)
        assert (await queue.consumer().receive(wait=60)).bodies == [b"later"]

    run(main)


def test_what_another_client_sends_ends_a_wait(run, url: str) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        waiting = asyncio.ensure_future(queue.consumer().receive(wait=60))
        await asyncio.sleep(0.05)

        def send() -> None:
            with shardq.connect(url) as other:
                other.queue("jobs").producer().send(b"x")

        await asyncio.to_thread(send)
        assert (await waiting).bodies == [b"x"]

    run(main)


def test_the_leases_of_a_loop_that_is_busy_are_kept(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", visibility_timeout=0.5)
        await queue.producer().send(b"x")
        message = (await queue.consumer(keep_leases=True).receive())[0]
        threading.Event().wait(1.5)  # in the loop
        assert len(await queue.consumer().receive()) == 0
        await message.ack()

    run(main)


def test_receivers_whose_time_is_over_share_the_looks_that_found_nothing(url: str) -> None:
    async def main() -> None:
        store = FaultyStore(open_store(url, SystemClock()), FaultPlan())
        async with shardq.aio.Client(shardq.Client(store)) as client:
            consumer = (await client.create_queue("jobs")).consumer()
            received = await asyncio.gather(*[consumer.receive(wait=0.2) for _ in range(500)])
            assert {len(batch) for batch in received} == {0}
            assert await asyncio.gather(*[consumer.pop(wait=0.05) for _ in range(10)]) == [None] * 10
            looks = sum(call.method == "shards" for call in store.calls)
            assert 0 < looks < 100

    asyncio.run(main())


def test_a_message_that_comes_at_the_end_of_their_time_is_received_by_one_of_them(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        consumer = queue.consumer()
        waiting = [asyncio.ensure_future(consumer.receive(wait=0.05)) for _ in range(50)]
        await queue.producer().send(b"x")
        received = await asyncio.gather(*waiting)
        assert sum(map(len, received)) == 1

    run(main)


@pytest.mark.parametrize("cancels", [False, True], ids=["too late", "cancelled"])
def test_what_has_waited_and_is_used_no_more_does_not_stay_in_memory(run, cancels: bool) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        consumer = queue.consumer()
        semaphore = await client.semaphore("one", permits=1)
        permit = await semaphore.acquire()
        for waits in (consumer.receive(wait=0.05), semaphore.acquire(0.05)):
            waiting = asyncio.ensure_future(waits)
            await asyncio.sleep(0.02)
            if cancels:
                waiting.cancel()
            await asyncio.wait([waiting])
            waiting.exception() if not waiting.cancelled() else None
        left: list[weakref.ref[object]] = [weakref.ref(consumer), weakref.ref(semaphore)]
        del consumer, semaphore, waiting, waits
        for _ in range(200):
            gc.collect()
            if not any(each() for each in left):
                break
            await asyncio.sleep(0.05)
        assert not any(each() for each in left)
        await permit.release()

    run(main)


def test_listening_ends_although_the_task_that_ends_it_is_cancelled_before_it_begins() -> None:
    async def main() -> int:
        loop, rested, cancelled = asyncio.get_running_loop(), asyncio.Event(), []

        def cancel_first(
            loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
        ) -> asyncio.Task[Any]:
            task = asyncio.Task(coroutine, loop=loop, **options)
            if not cancelled:
                cancelled.append(task.cancel())
            return task

        loop.set_task_factory(cancel_first)
        threads = Threads(1)
        waiters = Waiters(threads)
        waiters.rest = lambda: threads.wake(rested.set)
        found = await waiters.wait(
            lambda again: "found" if again else NothingYet(0.0),
            None,
            last_try=lambda: "",
            nothing=lambda: "",
            undo=lambda _: None,
        )
        assert found == "found"
        async with asyncio.timeout(30):
            await rested.wait()
        await threads.close(lambda: None)
        return len(cancelled)

    assert asyncio.run(main()) == 1
