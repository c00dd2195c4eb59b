"""Errors of the store reach the tasks whose calls met them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore

Main = Callable[[shardq.aio.Client], Coroutine[Any, Any, None]]


def run_with(url: str, main: Main, *faults: Fault) -> None:
    """Run a coroutine with a client whose store fails, and repeats nothing."""

    async def connected() -> None:
        store = FaultyStore(open_store(url, SystemClock()), FaultPlan(faults=faults))
        async with shardq.aio.Client(shardq.Client(store, retry_seconds=0)) as client:
            await main(client)

    asyncio.run(connected())


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE])
def test_sends_of_unknown_outcome_are_repeated_without_storing_a_message_twice(
    url: str, kind: FaultKind
) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        producer = queue.producer()
        sent = await asyncio.gather(
            *[producer.send(b"%d" % number) for number in range(5)], return_exceptions=True
        )
        assert {type(error) for error in sent} == {shardq.OutcomeUnknown}
        assert len({id(error) for error in sent}) == 5
        again = await asyncio.gather(*[producer.send(error.unsent[0]) for error in sent])
        assert len(set(again)) == 5
        assert [(await queue.get(each)).body for each in again] == [b"%d" % number for number in range(5)]
        assert (await queue.counts()).ready == 5

    run_with(url, main, Fault("append", 1, kind))


def test_a_cancelled_send_of_unknown_outcome_has_that_as_its_cause(url: str) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        producer = queue.producer()
        sending = asyncio.ensure_future(producer.send(b"x"))
        for _ in range(2):  # it is begun, and its answer has not come
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await sending
        assert isinstance(caught.value.__cause__, shardq.OutcomeUnknown)
        await producer.send(caught.value.__cause__.unsent[0])
        assert (await queue.counts()).ready == 1

    run_with(url, main, Fault("append", 1, FaultKind.LOST_RESPONSE))


def test_an_error_of_the_store_reaches_each_task_that_acks_and_the_acks_can_be_repeated(url: str) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 3)
        messages = list(await queue.consumer().receive(3))
        acked = await asyncio.gather(*[message.ack() for message in messages], return_exceptions=True)
        assert [type(error) for error in acked] == [shardq.StoreUnavailable] * 3
        await asyncio.gather(*[message.ack() for message in messages])
        assert (await queue.counts()).in_flight == 0

    run_with(
        url,
        main,
        Fault("acknowledge", 1, FaultKind.UNAVAILABLE),
        Fault("settle", 1, FaultKind.UNAVAILABLE),
    )


def test_a_receive_that_fails_lets_the_next_one_receive(url: str) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send(b"x")
        consumer = queue.consumer()
        first, second = await asyncio.gather(consumer.receive(), consumer.receive(), return_exceptions=True)
        assert isinstance(first, shardq.StoreUnavailable)
        assert second.bodies == [b"x"]

    run_with(url, main, Fault("shards", 1, FaultKind.UNAVAILABLE))


def test_work_goes_on_after_an_error_of_the_store(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send(b"x")

        async def handler(message: shardq.aio.Message) -> None:
            """Do nothing."""

        assert await shardq.aio.work(queue, handler, wait=0) == 1
        assert any("unreachable" in record.message for record in caplog.records)

    run_with(url, main, Fault("shards", 1, FaultKind.UNAVAILABLE))
