"""What tasks ask for at the same time is one call: none of them waits for the others longer than it must."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import msgspec
import pytest

import shardq
import shardq.aio
from shardq.base.clock import SystemClock
from shardq.base.shard import Shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Acknowledge, Append, Capabilities
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import FaultPlan, FaultyStore
from shardq.testing.seam import claims_of, sync_of


class Partly(WrappedStore):
    """A store that settles shard by shard, and where appends, or acks of one shard, can fail or wait."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url, SystemClock()))
        self.appends: list[Append] = []
        self.away: Shard | None = None
        self.appends_fail = False
        self.waits = threading.Event()
        self.waits.set()
        self.asked = threading.Event()

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, settle_across_shards=False)

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method == "append" and self.appends_fail:
            self.appends.append(args[0])
            raise shardq.StoreUnavailable("the store is away")
        if method == "acknowledge" and isinstance(args[0], Acknowledge) and args[0].shard == self.away:
            self.asked.set()
            if self.waits.is_set():
                raise shardq.StoreUnavailable("the shard is away")
            self.waits.wait(30)
        return do(*args, **kwargs)


def run_on(
    store: WrappedStore,
    main: Callable[[shardq.aio.Client], Coroutine[Any, Any, None]],
    *,
    retry_seconds: float,
) -> None:
    async def connected() -> None:
        async with shardq.aio.Client(shardq.Client(store, retry_seconds=retry_seconds)) as client:
            await main(client)

    asyncio.run(connected())


async def received(client: shardq.aio.Client, count: int = 40) -> list[shardq.aio.Message]:
    """Return messages of several shards that were received."""
    queue = await client.create_queue("jobs", shards=8)
    producer, consumer = queue.producer(), queue.consumer()
    await asyncio.gather(*[producer.send(b"x", group=str(number)) for number in range(count)])
    messages: list[shardq.aio.Message] = []
    while batch := await consumer.receive(count):
        messages += batch
    return messages


def shard_of(message: shardq.aio.Message) -> Shard:
    return claims_of(sync_of(message))[0].shard


def test_of_acks_of_several_shards_only_those_of_the_shard_fail_that_is_away(url: str) -> None:
    store = Partly(url)

    async def main(client: shardq.aio.Client) -> None:
        messages = await received(client)
        store.away = shard_of(messages[0])
        there = [shard_of(message) != store.away for message in messages]
        assert any(there)
        acked = await asyncio.gather(*[message.ack() for message in messages], return_exceptions=True)
        assert [error is None for error in acked] == there
        assert {type(error) for error in acked if error is not None} == {shardq.StoreUnavailable}
        assert [message.settled for message in messages] == there
        store.away = None
        await asyncio.gather(*[message.ack() for message in messages])
        assert (await (await client.queue("jobs")).counts()).in_flight == 0

    run_on(store, main, retry_seconds=0.1)


def test_acks_return_while_those_of_a_shard_that_is_away_are_repeated(url: str) -> None:
    store = Partly(url)

    async def main(client: shardq.aio.Client) -> None:
        messages = await received(client)
        store.away = shard_of(messages[0])
        acking = {message: asyncio.ensure_future(message.ack()) for message in messages}
        there = [task for message, task in acking.items() if shard_of(message) != store.away]
        await asyncio.wait_for(asyncio.gather(*there), 20)
        assert sum(not task.done() for task in acking.values()) == len(messages) - len(there)
        store.away = None
        await asyncio.gather(*acking.values())

    run_on(store, main, retry_seconds=60)


def test_an_ack_does_not_wait_for_one_of_a_shard_that_does_not_answer(url: str) -> None:
    store = Partly(url)

    async def main(client: shardq.aio.Client) -> None:
        messages = await received(client)
        store.away = shard_of(messages[0])
        other = next(message for message in messages if shard_of(message) != store.away)
        store.waits.clear()
        waits = asyncio.ensure_future(messages[0].ack())
        try:
            await asyncio.to_thread(store.asked.wait, 20)
            await asyncio.wait_for(other.ack(), 10)
            assert not waits.done()
        finally:
            store.waits.set()
        await waits

    run_on(store, main, retry_seconds=60)


def test_sends_behind_those_that_waited_for_a_store_that_is_away_are_tried_once(url: str) -> None:
    store = Partly(url)

    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", shards=1, time_shards=1, max_message_bytes=200_000)
        producer = queue.producer(bundle_bytes=100_000)
        store.appends_fail = True
        sent = await asyncio.gather(
            *[producer.send(b"%d" % number * 100_000) for number in range(5)], return_exceptions=True
        )
        assert {type(error) for error in sent} == {shardq.StoreUnavailable}
        attempts = Counter(bundle.id for append in store.appends for bundle in append.bundles)
        assert sorted(attempts.values())[:4] == [1, 1, 1, 1]
        assert max(attempts.values()) > 1
        store.appends_fail = False
        assert await producer.send(b"x")

    run_on(store, main, retry_seconds=0.3)


def test_acks_of_many_pieces_of_bundles_go_in_several_requests(url: str) -> None:
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan())

    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", shards=1, time_shards=1)
        await queue.producer().send_many([b"x"] * 6_000)
        batch = await queue.consumer().receive(6_000)
        pieces = [batch.part(batch[first : first + 3_000 : 2]) for first in (0, 3_000)]
        await asyncio.gather(*[piece.ack() for piece in pieces])
        spans = [
            sum(
                len(request.spans)
                for request in (call.arguments[0] if call.method == "settle" else call.arguments)
            )
            for call in store.calls
            if call.method in ("settle", "acknowledge")
        ]
        assert spans == [1_500, 1_500]
        assert (await queue.counts()).in_flight == 3_000

    run_on(store, main, retry_seconds=0)


@pytest.mark.parametrize("number", range(1, 7))
def test_ctrl_c_in_the_loop_leaves_no_send_without_an_answer(url: str, number: int) -> None:
    loop = asyncio.new_event_loop()
    steps = 0

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        nonlocal steps
        calls = [each.f_code.co_filename for each in (frame, frame.f_back) if each is not None]
        within = all("shardq/aio/" in name for name in calls)  # that of asyncio itself may lose a wakeup
        if event == "call" and within and asyncio.current_task(loop) is None:
            steps += 1
            if steps == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    async def send(queue: shardq.aio.Queue) -> list[object]:
        producer = queue.producer()
        return await asyncio.gather(*[producer.send(b"x") for _ in range(3)], return_exceptions=True)

    try:
        client = shardq.aio.connect(url)
        queue = loop.run_until_complete(client.create_queue("jobs"))
        sending = loop.create_task(send(queue))
        sys.setprofile(interrupt)
        try:
            loop.run_until_complete(sending)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        sent = loop.run_until_complete(asyncio.wait_for(sending, 10))
        assert steps >= min(number, 4)
        unknown = sum(isinstance(each, shardq.OutcomeUnknown) for each in sent)
        assert sum(isinstance(each, str) for each in sent) == 3 - unknown
        assert 3 - unknown <= loop.run_until_complete(queue.counts()).ready <= 3
        loop.run_until_complete(client.close())
    finally:
        loop.close()
