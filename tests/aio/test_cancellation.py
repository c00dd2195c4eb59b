"""A call that is cancelled leaves nothing behind that is not known."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from tests.aio.cancelling import each_cancelled

WHEN = pytest.mark.parametrize("when", [{}, {"turns": 1}, {"turns": 3}, {"seconds": 0.0005}], ids=str)
CLAIMS = {
    "receive": lambda consumer: consumer.receive(3),
    "a receive that waits": lambda consumer: consumer.receive(3, wait=5),
    "batches": lambda consumer: anext(consumer.batches(3)),
    "messages": lambda consumer: anext(consumer.messages(limit=3)),
}


@WHEN
@pytest.mark.parametrize("name", CLAIMS)
def test_a_receive_that_is_cancelled_at_any_await_gives_its_claim_back_uncounted(run, name, when) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 3)
        consumer = queue.consumer()
        cancelled = 0

        async def claim() -> None:
            received = CLAIMS[name](consumer)
            taken = await received
            await (taken if isinstance(taken, shardq.aio.Message | shardq.aio.Batch) else taken[0]).release(
                count=False
            )

        async for error in each_cancelled(lambda: CLAIMS[name](consumer), **when):
            if error is None:
                await asyncio.sleep(0)
                break
            cancelled += 1
            counts = await queue.counts()
            assert (counts.ready, counts.in_flight) == (3, 0)
            batch = await consumer.receive(3)
            assert {message.deliveries for message in batch} == {1}
            await batch.release(count=False)
        assert cancelled or when

    run(main)


@WHEN
def test_a_send_that_is_cancelled_at_any_await_is_stored_or_not_when_that_is_raised(run, when) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        producer = queue.producer()
        stored = 0
        async for error in each_cancelled(lambda: producer.send(b"x"), **when):
            known = error is None or "carried out" in "".join(getattr(error, "__notes__", ()))
            stored += known
            assert (await queue.counts()).ready == stored
        assert stored

    run(main)


@WHEN
@pytest.mark.parametrize("of_message", [True, False], ids=["message", "batch"])
def test_an_ack_that_is_cancelled_at_any_await_is_done_or_not_when_that_is_raised(
    run, of_message, when
) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        consumer = queue.consumer()
        await queue.producer().send_many([b"x"] * 20)
        held = 0
        batches: list[shardq.aio.Batch] = []

        async def ack() -> None:
            batch = batches[-1]
            await (batch[0] if of_message else batch).ack()

        batches.append(await consumer.receive())
        async for error in each_cancelled(ack, **when):
            done = error is None or "carried out" in "".join(getattr(error, "__notes__", ()))
            held += not done
            assert batches[-1][0].settled is done
            assert (await queue.counts()).in_flight == held
            batches.append(await consumer.receive())
            held += 1
            held -= 1
            await batches[-1].extend(60)
            held_now = (await queue.counts()).in_flight
            assert held_now == held + 1
        await asyncio.gather(*[batch.ack() for batch in batches])
        assert (await queue.counts()).in_flight == 0

    run(main)


@WHEN
def test_a_pop_that_is_cancelled_at_any_await_loses_no_message(run, when) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"%d" % number for number in range(20)])
        consumer = queue.consumer()
        popped = []

        async def pop() -> None:
            popped.append((await consumer.pop(wait=1)).body)

        async for _ in each_cancelled(pop, **when):
            pass
        while (message := await consumer.pop()) is not None:
            popped.append(message.body)
        assert sorted(popped, key=int) == [b"%d" % number for number in range(20)]

    run(main)


@WHEN
def test_a_permit_that_nobody_was_handed_is_returned(run, when) -> None:
    async def main(client: shardq.aio.Client) -> None:
        semaphore = await client.semaphore("smtp", permits=1)

        async def hold() -> None:
            async with semaphore:
                await asyncio.sleep(0)

        async for _ in each_cancelled(hold, **when):
            await (await semaphore.acquire(1)).release()
        assert (await semaphore.state()).held == 0

    run(main)


@WHEN
def test_other_calls_that_are_cancelled_are_carried_out_or_not_begun(run, when) -> None:
    async def main(client: shardq.aio.Client) -> None:
        made = 0

        async def create() -> None:
            await client.create_queue(f"queue{made}")

        async for error in each_cancelled(create, **when):
            done = error is None or "carried out" in "".join(getattr(error, "__notes__", ()))
            assert await client.exists(f"queue{made}") is done
            made += 1

    run(main)


def test_an_async_iterable_is_read_no_further_after_a_cancelled_send_many(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        read = 0
        waits = asyncio.Event()

        async def bodies():
            nonlocal read
            while True:
                if read == 700:
                    waits.set()
                    await asyncio.sleep(3_600)
                read += 1
                yield b"x"

        sending = asyncio.ensure_future(queue.producer().send_many(bodies()))
        await waits.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert read == 700
        assert (await queue.counts()).ready == 700

    run(main)


def test_a_timeout_ends_a_receive_that_waits_and_the_next_one_gets_the_message(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        consumer = queue.consumer()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await consumer.receive(wait=60)
        waiting = asyncio.ensure_future(consumer.receive(wait=60))
        await queue.producer().send(b"x")
        assert (await waiting).bodies == [b"x"]

    run(main)


def test_a_second_cancellation_does_not_wait_for_a_call_that_was_begun(run, monkeypatch) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", max_message_bytes=1_000_000)
        begun, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        class Slow:
            content_type = "slow"

            def encode(self, value: object) -> bytes:
                loop.call_soon_threadsafe(begun.set)
                go_on.wait(30)
                return b"slow"

            def decode(self, data: bytes) -> object:
                return data

        sending = asyncio.ensure_future(queue.producer(codec=Slow()).send(1))
        await begun.wait()
        sending.cancel()
        await asyncio.sleep(0)
        assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        go_on.set()

    run(main)


def test_what_a_cancelled_pop_has_acked_is_kept_whatever_pops_beside_it(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", shards=1, time_shards=1)
        consumer, got = queue.consumer(), 0
        first = asyncio.ensure_future(consumer.pop_many(10, wait=60))
        await asyncio.sleep(0.05)  # it waits
        second = asyncio.ensure_future(consumer.pop_many(10, wait=0.01))
        got += len(await second)
        await queue.producer().send_many([b"%d" % number for number in range(10)])
        for _ in range(3):
            await asyncio.sleep(0)
        first.cancel()
        with suppress(asyncio.CancelledError):
            got += len(await first)
        while found := await consumer.pop_many(10):
            got += len(found)
        assert got == 10

    run(main)


class Slow(WrappedStore):
    """A store whose claims wait until they may go on; ``most`` are under way at a time."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url, SystemClock()))
        self.go_on, self.asked = threading.Event(), threading.Event()
        self.go_on.set()
        self.under_way = self.most = 0

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method not in ("shards", "claim"):
            return do(*args, **kwargs)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.asked.set()
        self.go_on.wait(30)
        try:
            return do(*args, **kwargs)
        finally:
            self.under_way -= 1


def test_the_lease_of_a_claim_that_cannot_be_released_after_a_cancellation_is_not_kept(url: str) -> None:
    class Unreleased(Slow):
        def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if method == "release":
                raise shardq.StoreUnavailable("the test refuses it")
            return super().call(method, do, *args, **kwargs)

    async def main() -> None:
        store = Unreleased(url)
        async with shardq.aio.Client(shardq.Client(store, retry_seconds=0.1)) as client:
            queue = await client.create_queue("jobs", visibility_timeout=1)
            await queue.producer().send(b"x")
            consumer = queue.consumer(keep_leases=True)
            store.go_on.clear()
            store.asked.clear()
            receiving = asyncio.ensure_future(consumer.receive())
            await asyncio.to_thread(store.asked.wait, 30)
            receiving.cancel()
            await asyncio.sleep(0)
            store.go_on.set()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await receiving
            assert (await queue.counts()).in_flight == 1
            other = queue.consumer()
            async with asyncio.timeout(30):
                while not await other.receive(wait=1):
                    pass
            del cancelled, receiving

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


@pytest.mark.parametrize("of", ["consumer", "semaphore"])
def test_a_second_cancellation_lets_no_other_call_begin_beside_the_one_that_goes_on(
    url: str, of: str
) -> None:
    async def main() -> None:
        store = Slow(url)
        async with shardq.aio.Client(shardq.Client(store)) as client:
            queue, semaphore = await client.create_queue("jobs"), await client.semaphore("one", permits=1)
            consumer = queue.consumer()
            calls = {
                "consumer": lambda: consumer.receive(wait=60),
                "semaphore": lambda: semaphore.acquire(60),
            }
            await queue.producer().send(b"x")
            store.most = 0
            store.go_on.clear()
            store.asked.clear()
            first = asyncio.ensure_future(calls[of]())
            await asyncio.to_thread(store.asked.wait, 30)
            first.cancel()
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            second = asyncio.ensure_future(calls[of]())
            await asyncio.sleep(0.05)
            store.go_on.set()
            await second
            assert store.most == 1

    asyncio.run(main())


def test_a_block_of_a_semaphore_may_be_left_in_another_task(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        semaphore = await client.semaphore("two", permits=2)

        async def enter() -> None:
            await semaphore.__aenter__()

        async def leave() -> None:
            await semaphore.__aexit__(None, None, None)

        async with semaphore as own:
            await asyncio.create_task(enter())
            assert (await semaphore.state()).held == 2
            await asyncio.create_task(leave())
            assert (await semaphore.state()).held == 1
            assert not await own.lost()
        assert (await semaphore.state()).held == 0

    run(main)


def test_an_error_after_a_second_cancellation_of_send_many_is_not_reported_as_never_retrieved(
    url: str,
) -> None:
    class Refuses(WrappedStore):
        def __init__(self, url: str) -> None:
            super().__init__(open_store(url, SystemClock()))
            self.refuses, self.go_on = False, threading.Event()

        def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.refuses:
                self.go_on.wait(30)
                raise shardq.StoreUnavailable("the test refuses it")
            return do(*args, **kwargs)

    async def main() -> None:
        store, reported, reads = Refuses(url), list[object](), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with shardq.aio.Client(shardq.Client(store, retry_seconds=0.0)) as client:
            queue = await client.create_queue("jobs")

            async def bodies():
                yield b"x"
                reads.set()
                await asyncio.sleep(3_600)

            sending = asyncio.ensure_future(queue.producer().send_many(bodies()))
            await reads.wait()
            store.refuses = True
            sending.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            store.go_on.set()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)
            store.refuses = False
            del sending
            gc.collect()
        assert reported == []

    asyncio.run(main())


def test_an_iterator_of_messages_can_be_closed_after_its_client(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 3)
        messages = queue.consumer().messages(limit=3)
        await anext(messages)
        await client.close()
        await messages.aclose()  # as the loop does at its end, where nobody gets an error

    run(main)
