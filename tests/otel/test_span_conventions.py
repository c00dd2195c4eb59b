"""Spans and metrics follow the semantic conventions for messaging."""

from __future__ import annotations

import io

import pytest
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

import shardq
from shardq.otel import names
from shardq.otel.tracing import Tracing
from shardq.storage.opening import open_store
from shardq.tasks import Tasks, TaskWorker
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.worker import Worker
from tests.otel.traced import Traced, facts, links_of, trace_of


def test_every_name_is_one_of_the_conventions_or_of_shardq() -> None:
    known = {
        value
        for module in (messaging_attributes, messaging_metrics, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    named = {
        value
        for name, value in vars(names).items()
        if name in names.__all__ and isinstance(value, str) and "." in value and "/" not in value
    }
    assert len(named) > 15
    assert {value for value in named if value not in known} == {
        value for value in named if value.startswith("messaging.shardq.")
    }


def test_a_single_message_is_described_by_its_spans(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("orders")
    sent = queue.producer().send(b"a pot of tea", group="table 7")
    Worker(queue, lambda message: None, idle_exit=0, batch=1).run()
    _, time_shard, number, *_ = sent.split(":")
    place = {names.MESSAGE_ID: sent, names.PARTITION: f"{time_shard}:{number}"}
    common = {names.SYSTEM: "shardq", names.DESTINATION: "orders"}
    message = place | {names.DELIVERIES: 1, names.BODY_SIZE: 12, names.GROUP: "table 7"}
    kinds = {}
    for name, kind, expected in (
        ("send orders", "send", place),
        ("receive orders", "receive", message),
        ("process orders", "process", message | {names.OUTCOME: "worked"}),
        ("ack orders", "settle", message),
    ):
        span = traced.one(name)
        operation = {names.OPERATION_NAME: name.split()[0], names.OPERATION_TYPE: kind}
        assert facts(span) == common | operation | expected
        kinds[name] = span.kind
        assert span.status.status_code is StatusCode.UNSET
    assert list(kinds.values()) == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT]
    assert len({trace_of(span) for span in traced.spans}) == 1


def test_a_batch_has_a_link_to_each_message_that_says_which_one_it_is(
    client: shardq.Client, traced: Traced
) -> None:
    queue = client.create_queue("orders")
    ids = [queue.producer().send(b"%d" % number) for number in range(3)]
    Worker(queue, lambda batch: None, by_batch=True, idle_exit=0).run()
    sent = {facts(span)[names.MESSAGE_ID]: span.context.span_id for span in traced.all("send orders")}
    for name in ("receive orders", "process orders", "ack orders"):
        span = traced.one(name)
        assert sorted(links_of(span)) == sorted(sent.values())
        assert {facts(link)[names.MESSAGE_ID] for link in span.links} == set(ids)
        assert facts(span)[names.BATCH_COUNT] == 3
        assert names.MESSAGE_ID not in facts(span)
        assert trace_of(span) not in {trace_of(each) for each in traced.all("send orders")}


def test_a_bulk_send_says_how_many_messages_it_has_sent(client: shardq.Client, traced: Traced) -> None:
    client.create_queue("orders").producer().send_many([b"a", b"b", b"c"])
    assert facts(traced.one("send orders"))[names.BATCH_COUNT] == 3
    (point,) = traced.points(names.SENT_MESSAGES)
    assert point.value == 3


def test_with_links_a_handler_has_a_trace_of_its_own(url: str, clock: ManualClock) -> None:
    traced = Traced(links=True)
    with shardq.connect(url, hooks=traced.hooks, clock=clock) as client:
        queue = client.create_queue("orders")
        queue.producer().send(b"tea")
        Worker(queue, lambda message: None, idle_exit=0).run()
    sent, processed = traced.one("send orders"), traced.one("process orders")
    assert links_of(processed) == [sent.context.span_id]
    assert processed.parent is None


@pytest.mark.parametrize(
    ("ending", "outcome", "error"),
    [
        (ValueError("no tea"), "failed", "ValueError"),
        (shardq.Retry(), "retry", "Retry"),
        (shardq.DeadLetter(), "dead_letter", "DeadLetter"),
        (shardq.Snooze(60), "snooze", None),
        (shardq.Discard(), "discard", None),
    ],
)
@pytest.mark.parametrize("raises", [False, True])
def test_a_handler_says_what_came_of_its_message(
    client: shardq.Client, traced: Traced, ending: Exception, outcome: str, error: str | None, raises: bool
) -> None:
    queue = client.create_queue("orders", retry_delay=60)
    queue.producer().send(b"tea")

    def handler(message: shardq.Message) -> object:
        if raises or isinstance(ending, ValueError):
            raise ending
        return ending

    Worker(queue, handler, idle_exit=0).run()
    span = traced.one("process orders")
    assert facts(span)[names.OUTCOME] == outcome
    assert facts(span).get(names.ERROR_TYPE) == error
    assert (span.status.status_code is StatusCode.ERROR) == (error is not None)
    assert [event.name for event in span.events] == (["exception"] if error else [])
    (point,) = traced.points(names.PROCESS_DURATION)
    assert facts(point).get(names.ERROR_TYPE) == error


def test_an_outcome_that_an_error_has_caused_is_told_by_that_error(
    client: shardq.Client, traced: Traced
) -> None:
    queue = client.create_queue("orders", retry_delay=60)
    queue.producer().send(b"tea")

    def handler(message: shardq.Message) -> None:
        raise shardq.Retry from OSError("no water")

    Worker(queue, handler, idle_exit=0).run()
    assert facts(traced.one("process orders"))[names.ERROR_TYPE] == "OSError"


def test_an_error_without_a_text_reaches_the_worker_and_ends_the_span(
    client: shardq.Client, traced: Traced
) -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    client.create_queue("orders", max_deliveries=1).producer().send(b"tea")

    def handler(message: shardq.Message) -> None:
        raise SilentError

    Worker(client.queue("orders"), handler, idle_exit=0).run()
    span = traced.one("process orders")
    assert facts(span)[names.ERROR_TYPE].endswith("SilentError")
    assert span.status.status_code is StatusCode.ERROR
    (letter,) = client.queue("orders.dead").peek()
    assert letter.headers["shardq-reason"] == "SilentError"


def test_what_fails_says_so(client: shardq.Client, clock: ManualClock, traced: Traced) -> None:
    queue = client.create_queue("orders", visibility_timeout=1)
    with pytest.raises(shardq.InvalidMessage):
        queue.producer().send(1)
    queue.producer().send(b"tea")
    with queue.consumer() as consumer, queue.consumer() as other:
        (message,) = consumer.receive()
        clock.advance(2)
        other.receive()
        with pytest.raises(shardq.LeaseLost):
            message.ack()
    failed, sent = traced.all("send orders")
    assert facts(failed)[names.ERROR_TYPE] == "InvalidMessage"
    assert sent.status.status_code is StatusCode.UNSET
    assert facts(traced.one("ack orders"))[names.ERROR_TYPE] == "LeaseLost"


def test_receives_that_find_nothing_and_leases_that_are_kept_have_no_spans(
    client: shardq.Client, traced: Traced
) -> None:
    queue = client.create_queue("orders")
    with queue.consumer(keep_leases=True) as consumer:
        assert not consumer.receive()
        assert consumer.pop() is None
    assert traced.names == []


def test_an_ack_of_what_is_acked_already_has_no_span(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("orders")
    queue.producer().send(b"tea")
    with queue.consumer() as consumer:
        batch = consumer.receive(10)
        batch.ack()
        batch.ack()
    assert traced.names.count("ack orders") == 1


def test_an_ack_by_receipt_is_traced_with_what_is_known(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("orders")
    sent = queue.producer().send(b"tea")
    with queue.consumer() as consumer:
        (message,) = consumer.receive()
        queue.ack([message.receipt])
    assert facts(traced.one("ack orders"))[names.MESSAGE_ID] == sent


def test_messages_that_no_worker_receives_are_processed_in_their_traces_too(
    client: shardq.Client, traced: Traced
) -> None:
    queue = client.create_queue("orders")
    queue.producer().send_many([b"tea", b"milk"])
    with queue.consumer() as consumer:
        batch = consumer.receive(2)
        with traced.hooks.processing(batch[0]):
            batch[0].ack()
        with traced.hooks.processing(*batch):
            batch.ack()
    one, both = traced.all("process orders")
    assert trace_of(one) == trace_of(traced.one("send orders"))
    assert len(links_of(both)) == 2
    assert [span.parent.span_id for span in traced.all("ack orders")] == [
        one.context.span_id,
        both.context.span_id,
    ]


def test_a_span_of_a_task_has_its_name(client: shardq.Client, traced: Traced) -> None:
    tasks = Tasks()
    tasks.bind(client)

    @tasks.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    double.send(2)
    TaskWorker(tasks, client, threads=0, idle_exit=0).run()
    assert facts(traced.one("process tasks"))[names.TASK] == "double"
    assert all(not name.split()[1].startswith("_shardq") for name in traced.names)


def test_a_large_body_has_its_size_and_nothing_of_it_is_read(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("films")
    queue.producer().send_stream(io.BytesIO(b"frame" * 400_000))
    Worker(queue, lambda message: None, idle_exit=0).run()
    assert facts(traced.one("process films"))[names.BODY_SIZE] == 2_000_000
    assert traced.names.count("send films") == 1


def test_durations_and_messages_are_counted(client: shardq.Client, traced: Traced) -> None:
    queue = client.create_queue("orders")
    queue.producer().send_many([b"a", b"b"])
    Worker(queue, lambda message: None, idle_exit=0).run()
    operations = {
        facts(point)[names.OPERATION_NAME]: point.count for point in traced.points(names.OPERATION_DURATION)
    }
    assert operations == {"send": 1, "receive": 1, "ack": 1}
    assert [point.count for point in traced.points(names.PROCESS_DURATION)] == [2]
    assert [point.value for point in traced.points(names.CONSUMED_MESSAGES)] == [2]
    assert tuple(traced.points(names.PROCESS_DURATION)[0].explicit_bounds) == names.BUCKETS


class Letters(TextMapPropagator):
    """Carries no context, and one hundred headers of its own."""

    def inject(self, carrier, context=None, setter=None) -> None:
        carrier.update({f"letter-{number}": "x" for number in range(100)})

    def extract(self, carrier, context=None, getter=None):
        return context

    @property
    def fields(self) -> set[str]:
        return {"letter-0"}


def test_a_message_with_as_many_headers_as_it_may_have_is_sent_without_a_context(url: str) -> None:
    with shardq.connect(url, hooks=Tracing(propagator=Letters())) as client:
        queue = client.create_queue("orders")
        sent = queue.producer().send(b"tea", headers={"own": 1})
        assert queue.get(sent).headers == {"own": 1}


def test_a_send_that_is_repeated_is_stored_once_with_the_context_of_the_first(
    url: str, clock: ManualClock, traced: Traced
) -> None:
    plan = FaultPlan(faults=(Fault("append", 1, FaultKind.LOST_RESPONSE),))
    store = FaultyStore(open_store(url, clock), plan)
    with shardq.Client(store, hooks=traced.hooks, retry_seconds=0) as client:
        queue = client.create_queue("orders")
        with pytest.raises(shardq.OutcomeUnknown) as raised:
            queue.producer().send(b"tea")
        queue.producer().send(raised.value.unsent[0])
        (message,) = queue.peek()
    first, _ = traced.all("send orders")
    assert int(str(message.headers["traceparent"]).split("-")[2], 16) == first.context.span_id
