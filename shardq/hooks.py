"""Hooks, called before and after sends and acks; and observers, which are notified of counts and durations alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardq.base.callables import check_runs
from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.texts import shown
from shardq.errors import InvalidSetting
from shardq.message import Message

__all__ = ["Hooks", "Observer", "check_hooks", "check_observer"]


class Hooks:
    """Derive a class from this, override the methods that you need, and pass an instance to :func:`shardq.connect`.

    If a ``before`` hook raises, nothing is stored or acked, and the caller gets the error. Hooks run in the thread of
    the caller. When sends of several threads are stored together, hooks run in the thread that stores them. If
    ``before_send`` raises then, it is called again for each message alone, so that other threads' messages are stored.

    Hooks are called for ``send``, ``send_many`` and acks. They are not called for messages that are moved, redriven,
    replayed or copied, nor for Spark. For an ack by receipt each message is read from the store first, which costs one
    request per message; its body is bytes. Messages that are not stored any more are not shown.
    """

    def before_send(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """Act before messages are stored together."""

    def after_send(self, queue: str, messages: Sequence[OutgoingMessage], ids: Sequence[str]) -> None:
        """Act after messages were stored, with their ids."""

    def before_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Act before messages are acked."""

    def after_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Act after messages were acked. Lost messages are left out."""


class Observer:
    """Derive a class from this, override the methods that you need, and pass an instance to :func:`shardq.connect`.

    An observer measures: it is given numbers, and no message. Its methods are called in the thread of the caller, and
    of several threads at once. They MUST return at once and raise nothing. :class:`shardq.metrics.Metrics` is one.
    """

    def opened(self, counters: Callable[[], Mapping[str, object]], client: object) -> None:
        """Take what reads the :class:`shardq.Counts` of a client that was opened, by queue; "" are of no queue."""

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
    for name in ("before_send", "after_send", "before_ack", "after_ack"):
        check_runs("hook", getattr(hooks, name))


def check_observer(observer: object) -> None:
    """Raise InvalidSetting for what is neither None nor an observer."""
    if observer is not None and not isinstance(observer, Observer):
        raise InvalidSetting(
            f"observer={shown(observer)}: give an instance of a class that is derived from shardq.Observer, such as "
            "shardq.metrics.Metrics()"
        )
