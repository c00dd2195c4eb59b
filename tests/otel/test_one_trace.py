"""One trace connects a send with everything that follows from it, however the message travels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import shardq
from shardq.broadcast import Broadcast
from shardq.pipelines import Forward, Pipeline, PipelineWorker, Split
from shardq.tasks import Tasks, TaskWorker, chain, chord
from shardq.testing import ManualClock
from shardq.worker import Worker
from tests.otel.traced import Traced, facts, links_of, parent_of, trace_of


@contextmanager
def a_request(traced: Traced) -> Iterator[int]:
    with traced.tracer.start_as_current_span("GET /") as span:
        yield span.get_span_context().trace_id


def work(queue: shardq.Queue, handler=lambda message: None, **options) -> None:
    Worker(queue, handler, idle_exit=0, **options).run()


def test_a_message_is_processed_in_the_trace_that_it_was_sent_in(
    client: shardq.Client, traced: Traced
) -> None:
    queue = client.create_queue("orders")
    with a_request(traced) as trace:
        queue.producer().send(b"tea")
    work(queue)
    sent, processed = traced.one("send orders"), traced.one("process orders")
    assert trace_of(sent) == trace_of(processed) == trace
    assert parent_of(processed) == sent.context.span_id
    assert links_of(processed) == [sent.context.span_id]


def test_what_a_handler_traces_is_part_of_its_message(client: shardq.Client, traced: Traced) -> None:
    queue, mail = client.create_queue("orders"), client.create_queue("mail")

    def handler(message: shardq.Message) -> None:
        with traced.tracer.start_as_current_span("charge"):
            mail.producer().send(b"thanks")

    with a_request(traced) as trace:
        queue.producer().send(b"tea")
    work(queue, handler)
    work(mail)
    assert {trace_of(traced.one(name)) for name in ("charge", "send mail", "process mail")} == {trace}
    assert parent_of(traced.one("charge")) == traced.one("process orders").context.span_id


def test_each_message_of_a_bulk_send_is_processed_in_its_trace(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("orders")
    with a_request(traced) as trace:
        queue.producer().send_many([b"tea", shardq.OutgoingMessage(body=b"milk", headers={"cold": True})])
    work(queue)
    assert [trace_of(span) for span in traced.all("process orders")] == [trace, trace]


def test_a_message_that_carries_a_context_keeps_it(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("orders")
    given = {"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}
    queue.producer().send(b"tea", headers=given)
    queue.producer().send_many([shardq.OutgoingMessage(body=b"tea", headers=given)])
    work(queue)
    assert {trace_of(span) for span in traced.all("process orders")} == {0x0123456789ABCDEF0123456789ABCDEF}


def test_a_retry_a_dead_letter_and_a_redrive_stay_in_the_trace(
    client: shardq.Client, clock: ManualClock, traced: Traced
) -> None:
    queue = client.create_queue("orders", max_deliveries=2, retry_delay=1, max_retry_delay=1)

    def fail(message: shardq.Message) -> None:
        raise ValueError("no such tea")

    with a_request(traced) as trace:
        queue.producer().send(b"tea")
    work(queue, fail)
    clock.advance(2)
    work(queue, fail)
    dead = client.queue("orders.dead")
    with dead.consumer() as consumer:
        consumer.receive().release()
    assert queue.redrive() == 1
    work(queue)
    found = [*traced.all("process orders"), *traced.all("receive orders.dead")]
    assert len(found) == 4
    assert {trace_of(span) for span in found} == {trace}


@pytest.mark.parametrize("headers", [None, {"cold": True}])
def test_a_forwarded_message_stays_in_the_trace(
    client: shardq.Client, traced: Traced, headers: dict[str, bool] | None
) -> None:
    queue, kitchen = client.create_queue("orders"), client.create_queue("kitchen")
    with a_request(traced) as trace:
        queue.producer().send(b"tea")
    work(queue, lambda message: message.forward("kitchen", headers=headers))
    assert kitchen.peek()[0].headers.get("cold") == (headers and True)
    work(kitchen)
    assert trace_of(traced.one("process kitchen")) == trace


def test_a_message_without_a_context_begins_a_trace_that_goes_on_when_it_is_forwarded(
    url: str, client: shardq.Client, clock: ManualClock, traced: Traced
) -> None:
    queue, kitchen = client.create_queue("orders"), client.create_queue("kitchen")
    with shardq.connect(url, clock=clock) as other:
        other.queue("orders").producer().send(b"tea", headers={"cold": True})
    work(queue, lambda message: message.forward("kitchen"))
    assert kitchen.peek()[0].headers["cold"] is True
    work(kitchen)
    assert parent_of(traced.one("process kitchen")) == traced.one("process orders").context.span_id


def test_a_broadcast_is_called_by_its_name_and_its_trace_goes_on(
    client: shardq.Client, traced: Traced
) -> None:
    prices = Broadcast(client, "prices")
    with prices.subscribe() as subscription:
        with a_request(traced) as trace:
            assert prices.publish(b"tea 3") == 1
        (message,) = subscription.receive(1, wait=5)
        with traced.hooks.processing(message):
            pass
    assert trace_of(traced.one("send prices")) == trace_of(traced.one("process prices")) == trace
    assert facts(traced.one("process prices"))["messaging.destination.temporary"] is True


@pytest.mark.parametrize("together", [False, True])
def test_a_subscription_stays_in_the_trace_of_the_publish(
    client: shardq.Client, traced: Traced, together: bool
) -> None:
    topic = client.create_topic("news")
    subscription = topic.subscribe("archive")
    with a_request(traced) as trace:
        if together:
            topic.publish_many([b"rain", shardq.topics.TopicMessage(body=b"sun", headers={"for": "oslo"})])
        else:
            topic.publish(b"rain")
            topic.publish(b"sun", headers={"for": "oslo"})
    topic.relay()
    work(subscription.queue)
    assert {trace_of(span) for span in traced.all("send news")} == {trace}
    processed = traced.all("process news")
    assert [trace_of(span) for span in processed] == [trace, trace]
    assert facts(processed[0])["messaging.destination.subscription.name"] == "archive"


def test_all_links_of_a_pipeline_are_in_the_trace(client: shardq.Client, traced: Traced) -> None:
    raw, *_ = (client.create_queue(name) for name in ("raw", "words", "letters"))
    pipeline = (
        Pipeline("spelling")
        .link("raw", "words", lambda message: Split([Forward(body=b"a", headers={}), Forward(body=b"b")]))
        .link("words", "letters", lambda message: Forward(body=b"x", headers={"case": "lower"}))
        .output("letters")
    )
    with a_request(traced) as trace:
        raw.producer().send(b"a b")
    PipelineWorker(pipeline, client, idle_exit=0).run()
    work(client.queue("letters"))
    assert {trace_of(span) for span in traced.all("process words")} == {trace}
    assert [trace_of(span) for span in traced.all("process letters")] == [trace, trace]


@pytest.mark.parametrize("threads", [0, 2])
def test_all_steps_of_a_workflow_are_in_the_trace_each_behind_the_last(
    client: shardq.Client, traced: Traced, threads: int
) -> None:
    tasks = Tasks()
    tasks.bind(client)

    @tasks.task
    def double(number: int) -> int:
        with traced.tracer.start_as_current_span(f"double {number}"):
            return 2 * number

    @tasks.task
    async def total(numbers: list[int]) -> int:
        with traced.tracer.start_as_current_span("total"):
            return sum(numbers)

    @tasks.task
    def both(number: int) -> shardq.tasks.Workflow:
        return chain(double.signature(number), double.then())

    with a_request(traced) as trace:
        result = chain(chord([double.signature(1), double.signature(2)], total.then()), both.then()).send()
        alone = double.send(100)
    TaskWorker(tasks, client, threads=threads, idle_exit=0).run()
    assert (result.get(timeout=0), alone.get(timeout=0)) == (24, 200)
    own = [span for span in traced.spans if span.name.startswith(("double", "total"))]
    assert len(own) == 6
    assert {trace_of(span) for span in own} == {trace}
    assert {trace_of(span) for span in traced.all("process tasks")} == {trace}
    spans = {span.context.span_id: span for span in traced.spans}
    last = next(span for span in own if span.name == "double 12")
    behind = []
    while last.parent is not None and last.parent.span_id in spans:
        last = spans[last.parent.span_id]
        behind.append(last.name)
    assert (
        behind.count("process tasks") >= 4
    )  # the workflow, a step of the group, the total, `both`, its steps


def test_sends_that_are_joined_are_each_in_their_own_trace(client: shardq.Client, traced: Traced) -> None:
    from concurrent.futures import ThreadPoolExecutor

    queue = client.create_queue("orders")
    producer = queue.producer(linger=0.05)

    def send(number: int) -> tuple[int, str]:
        with a_request(traced) as trace:
            return trace, producer.send(b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        sent = {identity: trace for trace, identity in pool.map(send, range(8))}
    found = {}
    work(queue, lambda message: found.update({message.id: str(message.headers["traceparent"]).split("-")[1]}))
    assert {identity: int(trace, 16) for identity, trace in found.items()} == sent
    assert {trace_of(span) for span in traced.all("process orders")} == set(sent.values())
