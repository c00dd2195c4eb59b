"""Coroutines are traced as threads are, each in its own context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq.testing import ManualClock
from shardq.worker import Worker
from tests.otel.traced import Traced, facts, links_of, parent_of, trace_of


def run(url: str, traced: Traced, main: Callable[[shardq.aio.Client], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        async with shardq.aio.connect(url, hooks=traced.hooks) as client:
            await main(client)

    asyncio.run(connected())


def test_sends_of_coroutines_that_go_together_are_each_in_their_own_trace(url: str, traced: Traced) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("orders")
        producer, traces = queue.producer(), {}

        async def send(number: int) -> None:
            with traced.tracer.start_as_current_span("GET /") as span:
                traces[await producer.send(b"%d" % number)] = span.get_span_context().trace_id

        await asyncio.gather(*map(send, range(20)))
        found = {}

        async def handler(message: shardq.aio.Message) -> None:
            with traced.tracer.start_as_current_span("charge") as span:
                await asyncio.sleep(0)
                found[message.id] = span.get_span_context().trace_id

        assert await shardq.aio.work(queue, handler, wait=0) == 20
        assert found == traces

    run(url, traced, main)
    sent = {span.context.span_id for span in traced.all("send orders")}
    assert {parent_of(span) for span in traced.all("process orders")} == sent
    acked = traced.all("ack orders")
    assert {link for span in acked for link in links_of(span)} == sent


def test_calls_in_threads_run_in_the_context_of_their_coroutine(url: str, traced: Traced) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("orders")
        with traced.tracer.start_as_current_span("GET /"):
            await queue.producer().send_many([b"tea", b"milk"])
            await queue.producer().send(b"sugar", unique_key="sugar")
            async with queue.consumer() as consumer:
                batch = await consumer.receive(10, wait=1)
                await batch[0].release()
                await batch[1].forward("orders")

    run(url, traced, main)
    trace = trace_of(traced.one("GET /"))
    names = ["send orders", "send orders", "receive orders", "release orders", "forward orders"]
    assert [span.name for span in traced.spans if trace_of(span) == trace] == [*names, "GET /"]


def test_a_receive_that_waits_and_finds_something_is_one_span_without_an_error(
    url: str, traced: Traced
) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("orders")
        async with queue.consumer() as consumer:
            receiving = asyncio.ensure_future(consumer.receive(wait=30))
            await asyncio.sleep(0.05)
            await queue.producer().send(b"tea")
            assert len(await receiving) == 1

    run(url, traced, main)
    span = traced.one("receive orders")
    assert span.status.is_ok
    assert "error.type" not in facts(span)


def test_messages_of_the_asyncio_client_can_be_processed_without_a_worker(url: str, traced: Traced) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("orders")
        await queue.producer().send(b"tea")
        async with queue.consumer() as consumer:
            async for message in consumer.messages(wait=0):
                with traced.hooks.processing(message):
                    await message.ack()

    run(url, traced, main)
    assert trace_of(traced.one("process orders")) == trace_of(traced.one("send orders"))


def test_a_cancelled_handler_says_so(url: str, traced: Traced, clock: ManualClock) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("orders")
        await queue.producer().send(b"tea")
        begun = asyncio.Event()

        async def handler(message: shardq.aio.Message) -> None:
            begun.set()
            await asyncio.sleep(60)

        working = asyncio.ensure_future(shardq.aio.work(queue, handler))
        await begun.wait()
        working.cancel()
        await asyncio.wait([working])

    run(url, traced, main)
    assert facts(traced.one("process orders"))["error.type"] == "CancelledError"


@pytest.mark.parametrize("options", [{}, {"by_batch": True}], ids=["each", "batch"])
def test_async_handlers_of_a_worker_are_traced(
    client: shardq.Client, traced: Traced, options: dict[str, Any]
) -> None:
    queue = client.create_queue("orders")
    queue.producer().send(b"tea")

    async def handler(given: Any) -> None:
        await asyncio.sleep(0)
        with traced.tracer.start_as_current_span("charge"):
            await asyncio.sleep(0)

    Worker(queue, handler, idle_exit=0, **options).run()
    processed = traced.one("process orders")
    assert links_of(processed) == [traced.one("send orders").context.span_id]
    assert parent_of(traced.one("charge")) == processed.context.span_id


def test_queues_that_match_a_pattern_are_traced_by_their_own_names(
    client: shardq.Client, traced: Traced
) -> None:
    client.create_queue("mail/fast").producer().send(b"dear")
    Worker(client.pattern("mail/*"), lambda message: None, idle_exit=0).run()
    sent = traced.one("send mail/fast")
    followed = [traced.one(f"{name} mail/fast") for name in ("receive", "process", "ack")]
    assert [links_of(span) for span in followed] == [[sent.context.span_id]] * 3
    assert len(traced.spans) == 4
