"""One batch that a handler works on, and the state of each of its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from shardq.batch import Batch
from shardq.callables import check_has_run
from shardq.errors import InvalidSetting
from shardq.message import Message
from shardq.worker.report import Tally

__all__ = [
    "Attempt",
    "BatchHandler",
    "EachMessage",
    "Failure",
    "Handler",
    "HandlerCalls",
    "MessageHandler",
    "WholeBatch",
]

MessageHandler = Callable[[Message], object]
BatchHandler = Callable[[Batch], object]
Handler = Callable[[Any], object]
"""A handler of either kind. The option ``by_batch`` says which."""


class Failure(msgspec.Struct, frozen=True):
    """A message whose handler raised, and the reason that a dead letter carries."""

    message: Message
    reason: str


class Attempt:
    """What became of the messages of a batch. A message that is in no list was not started."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.worked: list[Message] = []
        self.failures: list[Failure] = []
        self.interrupted: list[Message] = []  # the handler was interrupted, or returned what has not run
        self.started = 0

    @property
    def unstarted(self) -> list[Message]:
        """The messages that no handler was called with."""
        return self.batch[self.started :]


class HandlerCalls(Protocol):
    """How a handler is called with the messages of a batch: one by one, or all at once."""

    def run(self, attempt: Attempt, tally: Tally, stopping: Callable[[], bool]) -> None:
        """Call the handler until the batch is done or the worker is told to stop."""
        ...


class EachMessage(msgspec.Struct, frozen=True):
    """Calls the handler with one message at a time. A message that fails does not affect the others."""

    handler: MessageHandler

    def run(self, attempt: Attempt, tally: Tally, stopping: Callable[[], bool]) -> None:
        """Call the handler with each message in turn."""
        for message in attempt.batch:
            if stopping():
                return
            attempt.started += 1
            try:
                result = self.handler(message)
            except Exception as error:
                _fail(attempt, tally, [message], error)
            except BaseException:
                attempt.interrupted.append(message)
                raise
            else:
                _finish(attempt, tally, [message], self.handler, result)


class WholeBatch(msgspec.Struct, frozen=True):
    """Calls the handler with the whole batch. When it raises, the messages that it has not settled have failed."""

    handler: BatchHandler

    def run(self, attempt: Attempt, tally: Tally, stopping: Callable[[], bool]) -> None:
        """Call the handler once, with all messages."""
        if stopping():
            return
        messages = list(attempt.batch)
        attempt.started = len(messages)
        try:
            result = self.handler(attempt.batch)
        except Exception as error:
            _fail(attempt, tally, messages, error)
        except BaseException:
            attempt.interrupted += messages
            raise
        else:
            _finish(attempt, tally, messages, self.handler, result)


def _finish(attempt: Attempt, tally: Tally, messages: list[Message], handler: object, result: object) -> None:
    """Count the messages as worked. Raises InvalidSetting when the handler returned something that has not run yet."""
    try:
        check_has_run("handler", handler, result)
    except InvalidSetting:
        attempt.interrupted += messages
        raise
    attempt.worked += messages
    tally.add(worked=len(messages))


def _fail(attempt: Attempt, tally: Tally, messages: list[Message], error: Exception) -> None:
    reason = _describe(error)
    attempt.failures += [Failure(message, reason) for message in messages]
    for _ in messages:
        tally.fail(reason)


def _describe(error: Exception) -> str:
    """The reason that a dead letter carries. Bytes that are no text, as in file names, are escaped."""
    try:
        text = str(error)
    except Exception:  # an error whose text cannot be made is a failure like any other
        text = ""
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return reason.encode("utf-8", "backslashreplace").decode("utf-8")
