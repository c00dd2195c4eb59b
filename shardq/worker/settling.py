"""How the messages of a batch are settled when their handler has ended."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from shardq.base.log import Log
from shardq.client.batch import Batch
from shardq.client.outcome import Backoff, DeadLetter, Retry, Snooze
from shardq.client.queue import Queue
from shardq.core.logs.results import encode_result
from shardq.core.message import Message
from shardq.core.settings import QueueSettings
from shardq.errors import (
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    LeaseLost,
    ShardqError,
    UnsupportedByStore,
)
from shardq.worker.attempt import Attempt, Ending
from shardq.worker.options import WorkerOptions
from shardq.worker.report import Tally

__all__ = ["AttemptSettling"]

_log = Log(__name__)

_Key = TypeVar("_Key", bound=Hashable)

_CANNOT = (InvalidMessage, InvalidName, InvalidSetting, UnsupportedByStore)
"""Errors of a message, or of its target: neither waiting nor the end of the worker fixes them."""


class AttemptSettling:
    """Acks messages that are finished, releases those not started, and applies the outcomes of the others."""

    def __init__(self, queue: Queue, attempt: Attempt, options: WorkerOptions, tally: Tally) -> None:
        self._queue, self._attempt, self._options, self._tally = queue, attempt, options, tally
        self._backoff = options.backoff(QueueSettings())
        self._last: frozenset[Message] = frozenset()

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps of settling, in order. Each can be repeated, and no two settle the same message."""
        attempt = self._attempt
        yield from self._step(attempt.finished, self._ack if attempt.results else Batch.ack, "settled")
        yield from self._step(attempt.unstarted, partial(Batch.release, count=False), "returned")
        yield from self._step(attempt.held_back, partial(Batch.release, count=False), "returned")
        yield from self._step(attempt.interrupted, Batch.release)
        snoozed = [each for each in attempt.endings if isinstance(each.outcome, Snooze)]
        for seconds, endings in _grouped(snoozed, _seconds):
            release = partial(Batch.release, delay=seconds, count=False)
            yield from self._step(_messages(endings), release, "settled")
        failed = [each for each in attempt.endings if not isinstance(each.outcome, Snooze)]
        if failed:
            yield self._read_settings
            yield from self._failures(failed)

    def _read_settings(self) -> None:
        """Ask for the settings of the queue, and which messages are no longer to be delivered."""
        self._backoff = self._options.backoff(self._queue.settings)
        messages = _messages(self._attempt.endings)
        self._last = frozenset(message for message in messages if message.last_delivery)

    def _failures(self, failed: Sequence[Ending]) -> Iterator[Callable[[], None]]:
        given_up = [each for each in failed if self._is_given_up(each)]
        retried = [each for each in failed if not self._is_given_up(each)]
        for (after, deliveries), endings in _grouped(retried, self._delayed):
            delay = after.delay(deliveries) if isinstance(after, Backoff) else after
            yield from self._step(_messages(endings), partial(Batch.release, delay=delay), "settled")
        for reason, endings in _grouped(given_up, lambda each: each.reason):
            settle = partial(self._dead_letter, reason=reason)
            yield from self._step(_messages(endings), settle, "settled", "dead_lettered")

    def _is_given_up(self, ending: Ending) -> bool:
        return isinstance(ending.outcome, DeadLetter) or ending.message in self._last

    def _delayed(self, ending: Ending) -> tuple[float | Backoff, int]:
        """Return the delay of a message: those that are alike are released together."""
        assert isinstance(ending.outcome, Retry)
        after = ending.outcome.after
        return self._backoff if after is None else after, ending.message.deliveries

    def _step(
        self, messages: Sequence[Message], settle: Callable[[Batch], None], *counters: str
    ) -> Iterator[Callable[[], None]]:
        if messages:
            yield partial(self._settle, self._attempt.batch.part(messages), settle, *counters)

    def _settle(self, part: Batch, settle: Callable[[Batch], None], *counters: str) -> None:
        lost = 0
        try:
            settle(part)
        except LeaseLost as error:
            lost = len(error.messages)
            self._tally.add(lease_lost=lost)
            _log.warning("%s", error)
        except _CANNOT as error:
            if len(part) > 1:
                for message in part:
                    self._settle(part.part([message]), settle, *counters)
                return
            lost = self._leave(part, error)
        self._tally.add(**dict.fromkeys(counters, len(part) - lost))

    def _leave(self, part: Batch, error: ShardqError) -> int:
        """Let a message that cannot be settled as it should be wait in its queue; returns how many that are."""
        pause = self._backoff.longest
        _log.error("message %s stays in its queue for %g seconds more: %s", part[0].id, pause, error)
        self._settle(part, partial(Batch.release, delay=pause, count=False), "settled")
        return len(part)

    def _ack(self, part: Batch) -> None:
        """Ack messages with the results of their handler, if the queue keeps results."""
        results = self._attempt.results
        kept = {
            each: results[each] for each in part if each in results and self._is_kept(each, results[each])
        }
        try:
            part.ack(results=kept)
        except InvalidSetting:  # the queue has kept none for a moment
            part.ack()

    def _is_kept(self, message: Message, result: object) -> bool:
        if not self._queue.settings.keep_results:
            return False
        try:
            encode_result(self._options.body_codec, result)
        except InvalidMessage as error:
            _log.error("message %s is acked without what its handler returned: %s", message.id, error)
            return False
        return True

    def _dead_letter(self, part: Batch, *, reason: str) -> None:
        part.dead_letter(reason)
        _log.info("%d messages went to the dead-letter queue: %s", len(part), reason)


def _grouped(endings: Iterable[Ending], key: Callable[[Ending], _Key]) -> Iterable[tuple[_Key, list[Ending]]]:
    groups: dict[_Key, list[Ending]] = {}
    for ending in endings:
        groups.setdefault(key(ending), []).append(ending)
    return groups.items()


def _seconds(ending: Ending) -> float:
    assert isinstance(ending.outcome, Snooze)
    return ending.outcome.seconds


def _messages(endings: Iterable[Ending]) -> list[Message]:
    return [ending.message for ending in endings]
