"""Settling the messages of a batch after the handler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from shardq.batch import Batch
from shardq.errors import InvalidMessage, LeaseLost
from shardq.message import Message
from shardq.queue import Queue
from shardq.worker.attempt import Attempt, Failure
from shardq.worker.options import Backoff
from shardq.worker.report import Tally

__all__ = ["AttemptSettling"]

_Key = TypeVar("_Key", int, str)

_log = logging.getLogger(__name__)


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
