"""Hooks around the calls of clients and handlers; and observers, which are notified of counts and durations alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

import msgspec

from shardq.base.callables import check_runs
from shardq.base.outgoing_message import Headers, HeaderValue, OutgoingMessage
from shardq.base.texts import shown
from shardq.core.message import Message
from shardq.errors import InvalidSetting

__all__ = [
    "AllHooks",
    "HookCall",
    "Hooks",
    "Observer",
    "check_hooks",
    "check_observer",
    "handler_call",
    "headers_to_forward",
    "stamped",
    "with_headers",
]


class HookCall(msgspec.Struct, kw_only=True, eq=False):
    """A call that hooks run around. The fields that are known only at its end are set then.

    ``operation`` is "send", "receive", "process", or what settles messages: "ack", "release", "extend", "forward" or
    "dead_letter".
    """

    operation: str
    queue: str
    """Of a receive that found nothing: the first queue or pattern of the consumer."""
    messages: Sequence[Message] = ()
    """Those that are processed or settled; of a receive those that were received, at its end."""
    batch: bool = False
    """True when the call may be about several messages."""
    ids: Sequence[str] = ()
    """Of the messages that were sent, at its end."""
    result: object = None
    """The value that the handler returned, at the end of "process"."""
    error: BaseException | None = None
    """Why some of the messages were not settled, at its end. Other calls raise their errors."""


def handler_call(messages: Sequence[Message], *, batch: bool) -> HookCall:
    """Return the call of a handler with a message, or with a batch of one queue."""
    return HookCall(operation="process", queue=messages[0].queue, messages=messages, batch=batch)


class Hooks:
    """Derive a class from this, override the methods that you need, and pass an instance to :func:`shardq.connect`.

    If a ``before`` hook raises, nothing is stored or acked, and the caller gets the error. Hooks run in the thread of
    the caller. When sends of several threads are stored together, hooks run in the thread that stores them. If
    ``before_send`` raises then, it is called again for each message alone, so that other threads' messages are stored.

    Hooks are called for ``send``, ``send_many`` and acks. They are not called for messages that are moved, redriven,
    replayed or copied, nor for Spark. For an ack by receipt each message is read from the store first, which costs one
    request per message; its body is bytes. Messages that are not stored any more are not shown.

    ``around`` and ``headers`` run in the thread and the context of the caller, also where others store its message.
    Clients without hooks pay nothing for them.
    """

    def before_send(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """Act before messages are stored together."""

    def after_send(self, queue: str, messages: Sequence[OutgoingMessage], ids: Sequence[str]) -> None:
        """Act after messages were stored, with their ids."""

    def before_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Act before messages are acked."""

    def after_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Act after messages were acked. Lost messages are left out."""

    def around(self, call: HookCall) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context manager that is entered before a call, and left after it with what it raised.

        The calls are sends and publishes, receives and pops, what settles messages, and the handlers of workers: also
        of tasks, pipelines and :func:`shardq.aio.work`. Leases that are kept in the background are left out.
        """
        return nullcontext()

    def headers(self, queue: str, headers: Mapping[str, HeaderValue]) -> Mapping[str, HeaderValue]:  # noqa: ARG002
        """Return the headers with which a message is sent, published or forwarded. It MUST keep those that it is given.

        Called within ``around`` of a send, and before that of a forward. It MAY be called again with what it has
        returned. Messages that are forwarded together keep their headers.
        """
        return headers


class AllHooks(Hooks):
    """Several hooks as one: they are called in their order, and the first one is the outermost.

    >>> class Named(Hooks):
    ...     def headers(self, queue, headers):
    ...         return {**headers, "from": "the shop"}
    >>> client = shardq.connect(url, hooks=AllHooks(Named(), Hooks()))
    >>> queue = client.create_queue("orders")
    >>> queue.get(queue.producer().send(b"tea")).headers
    {'from': 'the shop'}
    """

    def __init__(self, *hooks: Hooks) -> None:
        for each in hooks:
            check_hooks(each)
        self.all = hooks
        """These hooks, in their order."""

    def before_send(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """Call those of all hooks."""
        for each in self.all:
            each.before_send(queue, messages)

    def after_send(self, queue: str, messages: Sequence[OutgoingMessage], ids: Sequence[str]) -> None:
        """Call those of all hooks."""
        for each in self.all:
            each.after_send(queue, messages, ids)

    def before_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Call those of all hooks."""
        for each in self.all:
            each.before_ack(queue, messages)

    def after_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Call those of all hooks."""
        for each in self.all:
            each.after_ack(queue, messages)

    def around(self, call: HookCall) -> AbstractContextManager[object]:
        """Return a context manager of those of all hooks."""
        with ExitStack() as entered:  # which are left if a later one raises
            for each in self.all:
                entered.enter_context(each.around(call))
            return entered.pop_all()

    def headers(self, queue: str, headers: Mapping[str, HeaderValue]) -> Mapping[str, HeaderValue]:
        """Return what the last one makes of what those before it made."""
        for each in self.all:
            headers = each.headers(queue, headers)
        return headers


def with_headers(hooks: Hooks, queue: str, headers: Mapping[str, HeaderValue] | None) -> Headers | None:
    """Return the headers of a message as hooks want them; None where there are none. Other types than mappings stay."""
    if headers is not None and not isinstance(headers, Mapping):
        return headers  # which is refused with its own error
    return dict(hooks.headers(queue, headers or {})) or None


def headers_to_forward(
    hooks: Hooks, queue: str, given: Mapping[str, HeaderValue] | None, messages: Sequence[Message]
) -> Mapping[str, HeaderValue] | None:
    """Return the headers of what is forwarded, as hooks want them; None where they stay as they are."""
    if given is not None:
        return with_headers(hooks, queue, given) or {}
    if len(messages) != 1:  # each has its own
        return None
    own = messages[0].headers
    wanted = with_headers(hooks, queue, own) or {}
    return None if wanted == own else wanted


def stamped(hooks: Hooks, queue: str, message: OutgoingMessage) -> OutgoingMessage:
    """Return a message with the headers that hooks want. One that may be stored already is sent as it was."""
    if message.attempt is not None or message.id is not None:
        return message
    return msgspec.structs.replace(message, headers=with_headers(hooks, queue, message.headers))


class Observer:
    """Derive a class from this, override the methods that you need, and pass an instance to :func:`shardq.connect`.

    An observer measures: it is given numbers, and no message. Its methods are called in the thread of the caller, and
    of several threads at once. They MUST return at once and raise nothing. :class:`shardq.metrics.Metrics` is one.
    """

    def opened(self, counters: Callable[[], Mapping[str, object]], client: object) -> None:
        """Take what reads the :class:`shardq.Counters` of a client that was opened, by queue; "" are of no queue."""

    def requests(self, store: str, operation: str) -> Callable[[float], None]:  # noqa: ARG002
        """Return what is called with the seconds of each request of a kind. ``store`` is the scheme of its URL."""
        return lambda _: None

    def refused(self, store: str, operation: str, error: BaseException) -> None:
        """Note that a request to the store has raised an error."""

    def received(self, queue: str, waits: Sequence[tuple[int, int]]) -> None:
        """Note for how many microseconds messages were due when they were received for the first time, and how many."""

    def handled(self, queue: str, outcomes: Mapping[str, int], seconds: Sequence[float]) -> None:
        """Note the seconds of each call of a handler, of one or several, and the number of its messages by outcome.

        The outcomes are worked, failed, snoozed and discarded.
        """

    def ran(self, task: str, outcome: str, seconds: float | None) -> None:
        """Note that an attempt at a task has ended, and how long its function ran if it was called."""


def check_hooks(hooks: object) -> None:
    """Raise InvalidSetting unless these are None, or hooks that can be called."""
    if hooks is None:
        return
    if not isinstance(hooks, Hooks):
        raise InvalidSetting(
            f"hooks={shown(hooks)}: give an instance of a class that is derived from shardq.Hooks"
        )
    for name in ("before_send", "after_send", "before_ack", "after_ack", "around", "headers"):
        check_runs("hook", getattr(hooks, name))


def check_observer(observer: object) -> None:
    """Raise InvalidSetting for what is neither None nor an observer."""
    if observer is not None and not isinstance(observer, Observer):
        raise InvalidSetting(
            f"observer={shown(observer)}: give an instance of a class that is derived from shardq.Observer, such as "
            "shardq.metrics.Metrics()"
        )
