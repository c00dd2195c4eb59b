"""One batch on its way through a handler, and what became of each of its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from shardq.batch import Batch
from shardq.callables import check_has_run
from shardq.errors import InvalidSetting
from shardq.message import Message
from shardq.worker.report import Tally

__all__ = ["Attempt", "BatchHandler", "EachMessage", "Failure", "MessageHandler", "Trial", "WholeBatch"]

MessageHandler = Callable[[Message], object]
BatchHandler = Callable[[Batch], object]


class Failure(msgspec.Struct, frozen=True):
    """A message that its handler raised on, and why as a dead letter tells it."""

    message: Message
    reason: str


class Attempt:
    """What became of the messages of a batch so far; those in no list were not started."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.worked: list[Message] = []
        self.failures: list[Failure] = []
        self.interrupted: list[Message] = []  # their handler was ended, or has not really run
        self.started = 0

    @property
    def unstarted(self) -> list[Message]:
        """Those that no handler has seen."""
        return self.batch[self.started :]


class Trial(Protocol):
    """A way to bring a batch to a handler."""

    def run(self, attempt: Attempt, tally: Tally, stopping: Callable[[], bool]) -> None:
        """Work on the batch until it is done or the worker is told to stop."""
        ...


class EachMessage(msgspec.Struct, frozen=True):
    """The handler takes one message at a time; each fails by itself."""

    handler: MessageHandler

    def run(self, attempt: Attempt, tally: Tally, stopping: Callable[[], bool]) -> None:
        """Work on one message after the other."""
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
    """The handler takes the batch; when it raises, all that it has not settled itself has failed."""

    handler: BatchHandler

    def run(self, attempt: Attempt, tally: Tally, stopping: Callable[[], bool]) -> None:
        """Work on all messages at once."""
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
    """Take note that the handler is done; raises InvalidSetting when it has only made something that would run."""
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
    """What a dead letter says of it; file names in an error can hold what is no text."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
