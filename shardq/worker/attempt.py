"""One batch that a handler works on: how the handler is called, what became of each message, and how it is settled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from shardq.batch import Batch
from shardq.callables import check_has_run
from shardq.errors import InvalidMessage, InvalidSetting, LeaseLost
from shardq.message import Message
from shardq.queue import Queue
from shardq.worker.options import Backoff
from shardq.worker.report import Tally
from shardq.worker.shell_command import CommandFailed

__all__ = [
    "Attempt",
    "AttemptSettling",
    "BatchHandler",
    "EachMessage",
    "Failure",
    "Handler",
    "HandlerCalls",
    "MessageHandler",
    "WholeBatch",
]

_log = logging.getLogger(__name__)

_Key = TypeVar("_Key", int, str)

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
    _log_failure(messages, reason, error)
    attempt.failures += [Failure(message, reason) for message in messages]
    for _ in messages:
        tally.fail(reason)


def _log_failure(messages: list[Message], reason: str, error: Exception) -> None:
    """Log a failure, with its traceback unless a command failed: that of a command says nothing."""
    first = messages[0]
    which = f"message {first.id}" if len(messages) == 1 else f"{len(messages)} messages, first {first.id},"
    trace = None if isinstance(error, CommandFailed) else error
    _log.warning("%s failed, delivery %d: %s", which, first.deliveries, reason, exc_info=trace)


def _describe(error: Exception) -> str:
    """The reason that a dead letter carries. Bytes that are no text, as in file names, are escaped."""
    try:
        text = str(error)
    except Exception:  # an error whose text cannot be made is a failure like any other
        text = ""
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return reason.encode("utf-8", "backslashreplace").decode("utf-8")


class AttemptSettling:
    """Acks messages that are worked, gives back those not started, and releases or dead-letters those that failed."""

    def __init__(self, queue: Queue, attempt: Attempt, backoff: Backoff, tally: Tally) -> None:
        self._queue, self._attempt, self._backoff, self._tally = queue, attempt, backoff, tally
        self._max_deliveries: int | None = None

    def steps(self) -> Iterator[Callable[[], None]]:
        """The steps of settling, in order. Each can be repeated, and no two settle the same message."""
        attempt = self._attempt
        yield from self._step(attempt.worked, Batch.ack)
        yield from self._step(attempt.unstarted, Batch.give_back, counter="given_back")
        yield from self._step(attempt.interrupted, Batch.release)
        if attempt.failures:
            yield self._read_limit
            yield from self._failures()

    def _read_limit(self) -> None:
        self._max_deliveries = self._queue.settings.max_deliveries

    def _failures(self) -> Iterator[Callable[[], None]]:
        limit = self._max_deliveries
        for deliveries, failures in _grouped(
            self._attempt.failures, lambda failure: failure.message.deliveries
        ):
            if limit is None or deliveries < limit:
                release = partial(Batch.release, delay=self._backoff.delay(deliveries))
                yield from self._step(_messages(failures), release)
                continue
            for reason, group in _grouped(failures, lambda failure: failure.reason):
                yield from self._step(
                    _messages(group), partial(self._dead_letter, reason=reason), counter="dead_lettered"
                )

    def _step(
        self, messages: Sequence[Message], settle: Callable[[Batch], None], *, counter: str | None = None
    ) -> Iterator[Callable[[], None]]:
        if messages:
            yield partial(self._settle, self._attempt.batch.part(messages), settle, counter)

    def _settle(self, part: Batch, settle: Callable[[Batch], None], counter: str | None) -> None:
        lost = 0
        try:
            settle(part)
        except LeaseLost as error:
            lost = len(error.messages)
            self._tally.add(lease_lost=lost)
            _log.warning("%s", error)
        if counter:
            self._tally.add(**{counter: len(part) - lost})

    def _dead_letter(self, part: Batch, *, reason: str) -> None:
        try:
            part.dead_letter(reason)
            _log.info("%d messages went to the dead-letter queue: %s", len(part), reason)
        except InvalidMessage as error:
            _log.error("messages stay in their queue, because they cannot be moved: %s", error)
            part.release(delay=self._backoff.longest)


def _grouped(
    failures: Iterable[Failure], key: Callable[[Failure], _Key]
) -> Iterable[tuple[_Key, list[Failure]]]:
    groups: dict[_Key, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(key(failure), []).append(failure)
    return groups.items()


def _messages(failures: Iterable[Failure]) -> list[Message]:
    return [failure.message for failure in failures]
