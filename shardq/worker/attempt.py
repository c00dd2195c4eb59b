"""One batch that a handler works on: how the handler is called, and the outcome of each message."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from shardq.base.log import Log
from shardq.base.texts import described, text_of
from shardq.client.batch import Batch
from shardq.client.outcome import DeadLetter, Discard, Outcome, Retry, Snooze, check_returned
from shardq.client.queue_internals import without_next_claim
from shardq.core.message import Message
from shardq.errors import InvalidSetting
from shardq.worker.gate import Gate
from shardq.worker.observed import timed
from shardq.worker.policy import (
    ErrorFunction,
    as_failure,
    chosen,
    has_long_text,
    short_trace,
    shortened,
    trace_of,
)
from shardq.worker.report import Tally
from shardq.worker.shell_command import CommandFailed

if TYPE_CHECKING:
    import shardq.aio

__all__ = [
    "Attempt",
    "BatchHandler",
    "EachMessage",
    "Ending",
    "Handler",
    "HandlerCalls",
    "MessageHandler",
    "WholeBatch",
]

_log = Log(__name__)

MessageHandler: TypeAlias = "Callable[[Message], object] | Callable[[shardq.aio.Message], Awaitable[object]]"
BatchHandler: TypeAlias = "Callable[[Batch], object] | Callable[[shardq.aio.Batch], Awaitable[object]]"
Handler = Callable[[Any], object]
"""A handler of either kind, plain or async. The option ``by_batch`` says which."""


class Ending(msgspec.Struct, frozen=True):
    """A message that was not worked, its outcome, and the reason that a dead letter carries."""

    message: Message
    outcome: Outcome
    reason: str


def _by_id(message: Message) -> str:
    return f"message {message.id}"


class Attempt:
    """The results of the messages of a batch. A message that is in no list was not started.

    ``called`` is the log's name for a message.
    """

    def __init__(self, batch: Batch, called: Callable[[Message], str] = _by_id) -> None:
        self.batch, self.called, self.queue = batch, called, batch.queue or ""
        self.finished: list[Message] = []  # worked, or discarded
        self.results: dict[Message, Any] = {}  # what the handler returned for them
        self.endings: list[Ending] = []
        self.interrupted: list[Message] = []  # the handler was interrupted, or returned what has not run
        self.held_back: list[Message] = []  # lost, or behind an earlier message of their group
        self.started: list[Message] = []
        self.discarded, self.snoozed = 0, 0  # of those finished, and of those with an ending
        self._stopped = set[str]()  # lanes of groups
        self._process = os.getpid()

    def failure(self, raised: BaseException) -> Exception | None:
        """Return the failure that something raised by the handler is.

        None if it ends the worker: Ctrl-C, and the end of a child that the handler has forked.
        """
        if not isinstance(raised, Exception) and os.getpid() != self._process:
            return None
        return as_failure(raised)

    def holds_back(self, message: Message) -> bool:
        """Return whether the message has to wait for an earlier one of its group. It is released then."""
        if not self._stopped or message.lane not in self._stopped:
            return False
        self.held_back.append(message)
        return True

    def must_wait(self, message: Message) -> bool:
        """Return whether the message is not to be begun: its lease has expired, or it has to wait.

        It is released then.
        """
        if not message.lost:
            return self.holds_back(message)
        if message.lane is not None:
            self._stopped.add(message.lane)
        self.held_back.append(message)
        return True

    def take(self, messages: Iterable[Message], *, leave: bool) -> list[Message]:
        """Return those that wait for no other message. Unless they ``leave``, the later ones of their groups wait."""
        return [message for message in messages if self._takes(message, leaves=leave)]

    def _takes(self, message: Message, *, leaves: bool) -> bool:
        if self.holds_back(message):
            return False
        if message.lane is not None and (message.released or not (leaves or message.settled)):
            self._stopped.add(message.lane)
        return True

    @property
    def running(self) -> list[Message]:
        """The messages that the handler works on now."""
        ended = {*self.finished, *self.interrupted, *self.held_back, *(each.message for each in self.endings)}
        return [message for message in self.started if message not in ended]

    @property
    def unstarted(self) -> list[Message]:
        """The messages that no handler was called with."""
        if len(self.started) == len(self.batch):
            return []
        started = set(self.started)
        return [message for message in self.batch if message not in started]


class HandlerCalls(Protocol):
    """How a handler is called with the messages of a batch: one by one, or all at once."""

    def run(self, attempt: Attempt, tally: Tally, gate: Gate) -> None:
        """Call the handler until the batch is done or the gate is closed."""
        ...


class EachMessage(msgspec.Struct, frozen=True):
    """Calls the handler with one message at a time. A message that fails does not affect the others.

    One whose lease has expired, as after this process stood still, is not begun: another worker may have it.
    """

    handler: Handler
    policy: ErrorFunction

    def run(self, attempt: Attempt, tally: Tally, gate: Gate) -> None:
        """Call the handler with each message in turn."""
        with timed(self.handler, attempt, tally.observer) as handler:
            for message in attempt.batch:
                with gate() as is_open:
                    if not is_open:
                        return
                    if self.begins(attempt, message):
                        self.note(attempt, tally, message, partial(handler, message))

    def begins(self, attempt: Attempt, message: Message) -> bool:
        """Count a message as begun. False when the handler is not to be called with it."""
        waits = attempt.must_wait(message)
        attempt.started.append(message)
        return not waits

    def note(self, attempt: Attempt, tally: Tally, message: Message, call: Callable[[], object]) -> None:
        """Note the outcome of a message after a call, which returns or raises as its handler did."""
        try:
            result = call()
        except BaseException as error:
            if not _fail(attempt, tally, [message], error, self.policy):
                raise
        else:
            _finish(attempt, tally, [message], self.handler, result)
            if result is not None and not isinstance(result, Outcome):
                attempt.results[message] = result


class WholeBatch(msgspec.Struct, frozen=True):
    """Calls the handler with the whole batch. An error that it raises is about the messages that it has not settled.

    A batch in which a lease has expired, as after a long wait for a permit, is not begun. An ack by the handler claims
    nothing further: messages would be held beside those that it still works on.
    """

    handler: Handler
    policy: ErrorFunction

    def run(self, attempt: Attempt, tally: Tally, gate: Gate) -> None:
        """Call the handler once, with all messages."""
        with gate() as is_open:
            if is_open and not any(message.lost for message in attempt.batch):
                with timed(self.handler, attempt, tally.observer) as handler:
                    self._call(handler, attempt, tally)

    def _call(self, handler: Handler, attempt: Attempt, tally: Tally) -> None:
        messages = list(attempt.batch)
        attempt.started = messages
        try:
            result = handler(without_next_claim(attempt.batch))
        except BaseException as error:
            if not _fail(attempt, tally, messages, error, self.policy):
                raise
        else:
            _finish(attempt, tally, messages, self.handler, result)


def _finish(attempt: Attempt, tally: Tally, messages: list[Message], handler: object, result: object) -> None:
    """Note that the handler returned.

    Raises InvalidSetting for a value that has not run yet, or for an outcome's class.
    """
    try:
        check_returned(handler, result)
    except InvalidSetting:
        attempt.interrupted += messages
        raise
    if isinstance(result, Outcome):
        _end(attempt, tally, _taken(attempt, messages, result), result, _cause(result))
        return
    worked = attempt.take(messages, leave=True)
    attempt.finished += worked
    tally.add(worked=len(worked))


def _fail(
    attempt: Attempt, tally: Tally, messages: list[Message], raised: BaseException, policy: ErrorFunction
) -> bool:
    """Note that the handler raised an outcome, or an error for which the policy has one.

    False if it ends the worker.
    """
    error = attempt.failure(raised)
    if error is None:
        attempt.interrupted += messages
        return False
    if isinstance(error, Outcome):
        _end(attempt, tally, _taken(attempt, messages, error), error, _cause(error))
        _forget(error)
        return True
    groups: dict[Outcome, list[Message]] = {}
    for message in messages:
        outcome = chosen(policy, message, error)
        groups.setdefault(outcome, []).extend(_taken(attempt, [message], outcome))
    for outcome, group in groups.items():
        _end(attempt, tally, group, outcome, error)
    return True


def _taken(attempt: Attempt, messages: Iterable[Message], outcome: Outcome) -> list[Message]:
    """Take the messages for which the outcome holds: the others wait for an earlier one of their group."""
    return attempt.take(messages, leave=isinstance(outcome, Discard))


def _end(
    attempt: Attempt, tally: Tally, messages: list[Message], outcome: Outcome, error: BaseException | None
) -> None:
    """Note the outcome of messages, log it, and count it."""
    if not messages:
        return
    reason = shortened(outcome.reason or (text_of(outcome) if error is None else described(error)))
    which = attempt.called(messages[0]) if len(messages) == 1 else _many(messages)
    _log_ending(which, messages[0], outcome, reason, error)
    if not isinstance(outcome, Snooze):
        _note(messages, reason if not isinstance(outcome, Discard) else f"discarded: {reason}")
    match outcome:
        case Discard():
            attempt.finished += messages
            attempt.discarded += len(messages)
            tally.add(discarded=len(messages))
            return
        case Snooze():
            attempt.snoozed += len(messages)
            tally.add(snoozed=len(messages))
        case _:
            tally.fail(reason, len(messages))
    attempt.endings += [Ending(message, outcome, reason) for message in messages]


_WORDS: dict[type[Outcome], tuple[int, str]] = {
    Retry: (logging.WARNING, "failed"),
    DeadLetter: (logging.WARNING, "failed"),
    Discard: (logging.WARNING, "discarded"),
    Snooze: (logging.INFO, "snoozed"),
}


def _many(messages: list[Message]) -> str:
    return f"{len(messages)} messages, first {messages[0].id},"


def _log_ending(
    which: str, first: Message, outcome: Outcome, reason: str, error: BaseException | None
) -> None:
    """Log the outcome, with the first of the messages as fields for whoever writes them.

    The traceback of the error is logged too, unless a command failed: that of a command says nothing. Logging writes
    the texts of errors whole, so a traceback with one that is too long is a part of the message.
    """
    level, word = next(words for kind, words in _WORDS.items() if isinstance(outcome, kind))
    raised = None if error is None or isinstance(error, CommandFailed) else trace_of(error)
    trace, trace_text = None, ""
    if error is not None and raised is not None:
        if has_long_text(error, raised):
            trace_text = f"\n{short_trace(error, raised).rstrip()}"
        else:
            trace = type(error), error, raised
    facts = {"called": which, "queue": first.queue, "id": first.id, "delivery": first.deliveries}
    text, parts = "%s %s, delivery %d: %s%s", (which, word, first.deliveries, reason, trace_text)
    _log.log(level, text, *parts, exc_info=trace, extra=facts)


def _note(messages: Iterable[Message], text: str) -> None:
    for message in messages:
        message.note(text, failed=True)


def _cause(outcome: Outcome) -> BaseException | None:
    """Return the error that an outcome was raised from, or while it was handled."""
    hidden = outcome.__cause__ is not None or outcome.__suppress_context__
    return outcome.__cause__ if hidden else outcome.__context__


def _forget(outcome: Outcome) -> None:
    """Forget where an outcome was raised: a program may raise the same one for every message."""
    outcome.__traceback__ = outcome.__context__ = outcome.__cause__ = None
    outcome.__suppress_context__ = False
