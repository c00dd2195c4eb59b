"""Hooks that make a span of each call of a client, and carry its context in the headers of messages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, cast

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from shardq.base.outgoing_message import TASK_HEADER, HeaderValue
from shardq.base.receipt import MessageId
from shardq.base.texts import text_of
from shardq.client.outcome import DeadLetter, Outcome, Retry, outcome_name
from shardq.core.hooks import HookCall, Hooks, handler_call
from shardq.core.message import Message
from shardq.errors import InvalidMessage, PartialSend
from shardq.otel import names
from shardq.otel.names import Destination, destination_of

if TYPE_CHECKING:
    from shardq.aio import Message as AsyncMessage

__all__ = ["Tracing"]

Attributes = dict[str, AttributeValue]

_KINDS = {"send": SpanKind.PRODUCER, "process": SpanKind.CONSUMER}
_MOST_HEADERS = 100  # of one message


class Tracing(Hooks):
    """Hooks that trace a client: pass one to :func:`shardq.connect`, or call :func:`instrument` for all clients.

    Spans are named ``send orders``, ``receive orders``, ``process orders``, and ``ack``, ``release``, ``extend``,
    ``forward`` and ``dead_letter`` with the queue. A message carries the context of its send in its headers. The
    span that processes it is a child of that one, in the same trace, and has a link to it; with ``links`` it only has
    the link. A batch has a link to each of its messages. A message that carries a context keeps it. Receives that find
    nothing have no span.

    The providers and the propagator are the global ones without these arguments. Without an SDK nothing is recorded.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> client = shardq.connect(url, hooks=Tracing(tracer_provider=TracerProvider()))
    >>> queue = client.create_queue("orders")
    >>> queue.get(queue.producer().send(b"tea")).headers["traceparent"][:3]
    '00-'
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        links: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("shardq", None, tracer_provider, names.SCHEMA_URL)
        self._own_propagator, self._links = propagator, links
        meter = metrics.get_meter("shardq", "", meter_provider, names.SCHEMA_URL)
        buckets = list(names.BUCKETS)
        self._operation_seconds = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "Duration of an operation of a producer or consumer.",
            explicit_bucket_boundaries_advisory=buckets,
        )
        self._process_seconds = meter.create_histogram(
            names.PROCESS_DURATION,
            "s",
            "Duration of a call of a handler.",
            explicit_bucket_boundaries_advisory=buckets,
        )
        self._sent = meter.create_counter(
            names.SENT_MESSAGES, "{message}", "Messages that producers tried to send."
        )
        self._consumed = meter.create_counter(
            names.CONSUMED_MESSAGES, "{message}", "Messages that were received."
        )

    def headers(self, queue: str, headers: Mapping[str, HeaderValue]) -> Mapping[str, HeaderValue]:  # noqa: ARG002
        """Return the headers with the current context, unless they have one, or there are too many of them."""
        propagator = self._propagator
        if any(field in headers for field in propagator.fields):
            return headers
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        return headers if len(headers) + len(carrier) > _MOST_HEADERS else {**headers, **carrier}

    def processing(self, *messages: Message | AsyncMessage) -> AbstractContextManager[object]:
        """Return a context manager for the work on messages that no worker receives: its span is current within it.

        Messages of the asyncio client will do. Several messages are a batch.

        >>> tracing = Tracing()
        >>> client = shardq.connect(url, hooks=tracing)
        >>> sent = client.create_queue("orders").producer().send(b"tea")
        >>> with client.queue("orders").consumer() as consumer:
        ...     for message in consumer.receive(10):
        ...         with tracing.processing(message):
        ...             message.ack()
        """
        given = cast("tuple[Message, ...]", messages)  # those of coroutines have the same properties
        return self.around(handler_call(given, batch=len(given) > 1))

    @contextmanager
    def around(self, call: HookCall) -> Iterator[None]:
        """Make a span of a call. Sends and handlers run in its context."""
        where = destination_of(call.queue, call.operation)
        if where is None and call.operation != "receive":  # the queue of a receive is known at its end
            yield
            return
        began = time.time_ns()
        span = self._span(call, where, began) if where is not None and call.operation in _KINDS else None
        token = None if span is None else contexts.attach(trace.set_span_in_context(span))
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            if token is not None:
                contexts.detach(token)
            self._end(call, where, began, span, raised)

    def _end(
        self,
        call: HookCall,
        where: Destination | None,
        began: int,
        span: Span | None,
        raised: BaseException | None,
    ) -> None:
        """End the span of a call, and measure it. A receive that found nothing has none."""
        error = _failure(call, raised)
        if call.operation == "receive":
            where = destination_of(call.queue, call.operation)  # of several queues that of the batch
            if not call.messages and error is None:
                return
        if where is None:
            return
        if span is None:
            span = self._span(call, where, began)
        facts = _common(call, where)
        if error is not None:
            facts[names.ERROR_TYPE] = type(error).__qualname__
            span.set_attribute(names.ERROR_TYPE, type(error).__qualname__)
            with suppress(Exception):  # of an error whose text cannot be made
                span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, text_of(error)))
        span.set_attributes(_known_at_the_end(call, raised))
        ended = time.time_ns()
        span.end(ended)
        self._measure(call, facts, (ended - began) / 1e9, error)

    def _measure(
        self, call: HookCall, facts: Attributes, seconds: float, error: BaseException | None
    ) -> None:
        if call.operation == "process":
            self._process_seconds.record(seconds, facts)
            return
        self._operation_seconds.record(seconds, facts)
        if call.operation == "send":
            tried = [*error.stored, *error.unsent] if isinstance(error, PartialSend) else call.ids
            self._sent.add(len(tried) or 1, facts)
        elif call.operation == "receive":
            self._consumed.add(len(call.messages), facts)

    def _span(self, call: HookCall, where: Destination, began: int) -> Span:
        attributes = _common(call, where)
        if not call.batch and len(call.messages) == 1:
            attributes |= _of_message(call.messages[0])
        elif call.messages:
            attributes[names.BATCH_COUNT] = len(call.messages)
        return self._tracer.start_span(
            names.span_name(call.operation, where.name),
            self._parent(call),
            _KINDS.get(call.operation, SpanKind.CLIENT),
            attributes,
            list(self._links_to(call.messages, several=len(call.messages) > 1)),
            began,
        )

    def _parent(self, call: HookCall) -> Context:
        """Return the context that a span begins in: that of the message where it is one, and else the current one."""
        current = contexts.get_current()
        alone = len(call.messages) == 1 and not self._links
        follows = (
            call.operation == "process" or not trace.get_current_span(current).get_span_context().is_valid
        )
        if alone and follows:
            return self._propagator.extract(_texts(call.messages[0]), current)
        return current

    def _links_to(self, messages: Iterable[Message], *, several: bool) -> Iterator[Link]:
        """Make a link to the context of each message; those of several messages say which one it is."""
        for message in messages:
            found = self._propagator.extract(_texts(message), Context())
            sent_in = trace.get_current_span(found).get_span_context()
            if sent_in.is_valid:
                yield Link(sent_in, _of_message(message) if several else None)

    @property
    def _propagator(self) -> TextMapPropagator:
        return self._own_propagator or propagate.get_global_textmap()


def _common(call: HookCall, where: Destination) -> Attributes:
    """Return the attributes of spans and metrics."""
    found: Attributes = {
        names.SYSTEM: names.SYSTEM_NAME,
        names.OPERATION_NAME: call.operation,
        names.OPERATION_TYPE: names.OPERATION_TYPES.get(call.operation, "settle"),
        names.DESTINATION: where.name,
    }
    if where.subscription is not None:
        found[names.SUBSCRIPTION] = where.subscription
    if where.temporary:
        found[names.TEMPORARY] = True
    return found


def _of_message(message: Message) -> Attributes:
    """Return the attributes of a single message. A message that is damaged in the store has fewer."""
    found: Attributes = _place(message.id)
    found[names.DELIVERIES] = message.deliveries
    if message.group is not None:
        found[names.GROUP] = message.group
    with suppress(InvalidMessage):
        large = message.large
        found[names.BODY_SIZE] = len(message.raw) if large is None else large.size
        task = message.headers.get(TASK_HEADER)
        if isinstance(task, str):
            found[names.TASK] = task
    return found


def _place(identity: str) -> Attributes:
    shard = MessageId.parse(identity).shard
    return {names.MESSAGE_ID: identity, names.PARTITION: f"{shard.time_shard}:{shard.number}"}


def _known_at_the_end(call: HookCall, raised: BaseException | None) -> Attributes:
    found: Attributes = {}
    if call.operation == "process":
        found[names.OUTCOME] = outcome_name(raised or call.result)
    elif call.batch and call.ids:
        found[names.BATCH_COUNT] = len(call.ids)
    elif len(call.ids) == 1:
        found |= _place(call.ids[0])
    return found


def _texts(message: Message) -> dict[str, str]:
    """Return the headers that may carry a context."""
    with suppress(InvalidMessage):
        return {name: value for name, value in message.headers.items() if isinstance(value, str)}
    return {}


def _failure(call: HookCall, raised: BaseException | None) -> BaseException | None:
    """Return why a call failed. Snooze and Discard are no failures; Retry and DeadLetter are, or what caused them."""
    ended = raised or call.error or (call.result if isinstance(call.result, Outcome) else None)
    if not isinstance(ended, Outcome):
        return ended
    return (ended.__cause__ or ended) if isinstance(ended, Retry | DeadLetter) else None
