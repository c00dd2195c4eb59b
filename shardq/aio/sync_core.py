"""Operations of the sync client for the asyncio one, beyond its public methods.

Here a receive waits in no thread, and calls of several coroutines are one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeVar, cast

from shardq.base.outgoing_message import OutgoingMessage
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.producer import Producer
from shardq.client.semaphore import Permit, Semaphore
from shardq.core.context.group_commit import Pending, for_another_thread
from shardq.core.context.settle_group_commit import MOST_SPANS
from shardq.core.held import Selection, SettleState, in_states
from shardq.core.hooks import Hooks
from shardq.core.limits.queue_limits import PermitPace
from shardq.core.message import Message
from shardq.core.receiving.idling import NothingYet, ThreadlessIdling
from shardq.core.sending.appending import prepare
from shardq.core.sending.bulk_send import BulkSend
from shardq.core.sending.prepared import Send, prepare_options
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.settle import spans_of
from shardq.errors import PermitTimeout, ShardqError
from shardq.storage.listening import Waiter

__all__ = [
    "BulkParts",
    "NothingYet",
    "PermitAttempts",
    "ack_each",
    "for_another_thread",
    "hooks_of",
    "idle_without_thread",
    "is_finished",
    "nothing_in",
    "receive_or_pause",
    "rest",
    "return_uncounted",
    "send_each",
    "timed_out",
]

# ruff: noqa: SLF001 - it is of the same house

T = TypeVar("T")
_UNSETTLED = SettleState.OPEN, SettleState.LOST


def idle_without_thread(consumer: Consumer, wake: Callable[[], None]) -> None:
    """Let a new consumer wait in no thread: see :func:`receive_or_pause`. ``wake`` is called when there are news."""
    first = consumer._context
    consumer._idling = ThreadlessIdling(
        first.store, first.retry, consumer._receiving, lambda: consumer._stopped, wake=wake
    )


def receive_or_pause(consumer: Consumer, receive: Callable[[], T], *, again: bool) -> T | NothingYet:
    """Return what a receive or pop of such a consumer returns, or for how long to wait until it is called ``again``."""
    idling = cast("ThreadlessIdling", consumer._idling)
    try:
        if again:
            idling.resume()
        return receive()
    except NothingYet as pause:
        return pause
    finally:
        idling.news = None


def return_uncounted(consumer: Consumer, batch: Batch) -> None:
    """Release the messages of a receive whose result nobody takes, uncounted. If that fails, their leases expire."""
    try:
        if batch:
            batch.release(count=False)
    finally:
        if consumer._keepers is not None:  # an error may refer to the batch until the collector finds it
            consumer._keepers.leave([selection.held for selection in batch._open])


def nothing_in(consumer: Consumer) -> Batch:
    """Return the empty batch of a receive that found nothing."""
    return consumer._batch(())


def rest(consumer: Consumer) -> None:
    """Let such a consumer listen no longer, until the next receive."""
    cast("ThreadlessIdling", consumer._idling).rest()


class PermitAttempts:
    """Takes a permit of a semaphore for a caller that waits in no thread. ``wake`` is called when there are news."""

    def __init__(self, semaphore: Semaphore, wake: Callable[[], None]) -> None:
        self._semaphore, self._pace = semaphore, PermitPace()
        self._retry = semaphore._context.retry
        self._waiter = Waiter(semaphore._context.store, wake=wake)

    def take(self, until: float | None) -> Permit | NothingYet | None:
        """Return a permit, or None after a moment of ``time.monotonic()``, or for how long to wait for ``wake``.

        Errors are as in ``acquire``.
        """
        semaphore = self._semaphore
        while not (taken := semaphore._take()):
            left = inf if until is None else until - time.monotonic()
            if left <= 0:
                return None
            if not self._retry(self._waiter.poll, (semaphore._permits.queue,)):
                return NothingYet(min(left, self._pace.until_next_poll(semaphore._permits)))
        self.rest()
        return semaphore._granted(taken)

    def take_now(self) -> Permit | None:
        """Return a permit if there is one."""
        taken = self._semaphore._take()
        return self._semaphore._granted(taken) if taken else None

    def rest(self) -> None:
        """Listen no longer, until the next attempt."""
        self._waiter.rest()


def hooks_of(user: Producer | Consumer) -> tuple[Hooks | None, str]:
    """Return the hooks of the client that has made a producer or consumer, and the name of its queue."""
    return user._context.hooks, user._context.name


def timed_out(semaphore: Semaphore) -> PermitTimeout:
    """Return the error of a caller who got no permit in time."""
    return semaphore._timed_out()


def send_each(
    producer: Producer, messages: Sequence[OutgoingMessage], since: float
) -> Sequence[Pending[Send, str]]:
    """Store single messages together, as :meth:`Producer.send` does in several threads; each has its id or error.

    Only the first of them, as many as fill a bundle. The store is asked again for ``retry_seconds`` after ``since``, a
    moment of ``time.monotonic()``.
    """
    producer._check_open()
    context, prepared, size = producer._context, list[Send | Exception](), 0
    for message in messages:
        try:
            options = prepare_options(message, context.name)
            prepared.append(send := prepare(context, message.body, message.body, options, producer._codec))
            size += len(send.bodies[0])
        except Exception as error:  # that of a codec, too
            prepared.append(error)
        if size >= producer._limits.size:
            break
    with context.retry.within(since=since):
        sent = iter(
            producer._group_commit.run([each for each in prepared if not isinstance(each, Exception)])
        )
    return [_failed(each) if isinstance(each, Exception) else next(sent) for each in prepared]


class BulkParts:
    """A bulk send whose bodies come part by part. Options are those of ``shared``, as in ``send_many``."""

    def __init__(self, producer: Producer, shared: OutgoingMessage) -> None:
        self._producer, self._shared = producer, shared
        self._bulk: BulkSend | None = None

    def store(self, bodies: Iterable[Any]) -> Sequence[str]:
        """Store a part; returns the ids of all parts. A PartialSend has those of all parts, and is the last call."""
        producer = self._producer
        producer._check_open()
        if self._bulk is None:
            self._bulk = BulkSend(
                producer._context, iter(()), self._shared, codec=producer._codec, limits=producer._limits
            )
        return self._bulk.store_more(bodies)


def _failed(error: Exception) -> Pending[Send, str]:
    pending = Pending[Send, str](cast("Send", None))
    pending.error = error
    return pending


def ack_each(
    acked: Sequence[Batch | Message], since: float, *, repeats: bool
) -> Sequence[tuple[None, Exception | None] | None]:
    """Ack batches and messages together, as their ``ack`` does in several threads; returns the outcome of each.

    Only the first of them, as many as go into one request. One that is lost, that is named twice, or that another
    consumer or queue than the first settles is acked alone. Unless this ``repeats`` them, None stands for acks that
    another attempt may do, for ``retry_seconds`` after ``since``, a moment of ``time.monotonic()``.
    """
    acked = acked[: _few(acked)]
    retry = cast("SettleEngine", acked[0]._settler)._context.retry
    repeats = repeats or time.monotonic() - since >= retry.seconds
    with retry.within(since=since) if repeats else retry.within(0.0):
        errors = _ack_together(acked)
    return [None if not repeats and _is_retryable(error) else (None, error) for error in errors]


def _few(acked: Sequence[Batch | Message]) -> int:
    spans = 0
    for number, each in enumerate(acked):
        spans += len(spans_of(each._open)) if isinstance(each, Batch) else 1
        if number and spans > MOST_SPANS:
            return number
    return len(acked)


def _is_retryable(error: Exception | None) -> bool:
    return isinstance(error, ShardqError) and error.retryable


def _ack_together(acked: Sequence[Batch | Message]) -> Sequence[Exception | None]:
    together, alone = _apart(acked)
    errors: list[Exception | None] = [None] * len(acked)
    if len(together) == 1:
        together, alone = [], [*together, *alone]
    try:
        if together:
            acked[together[0]]._settler.ack([each for at in together for each in _selections(acked[at])])
    except Exception as error:
        left = [place for place in together if _has(acked[place], *_UNSETTLED)]
        if _is_retryable(error):  # another attempt now would meet it too
            for place in left:
                if _has(acked[place], SettleState.OPEN):
                    errors[place] = cast("Exception", for_another_thread(error))
                else:  # lost, as an ack of it alone tells
                    alone.append(place)
        else:
            alone = [*left, *alone]
    for place in alone:
        try:
            acked[place].ack()
        except Exception as error:
            errors[place] = error
    return errors


def _selections(acked: Batch | Message) -> Sequence[Selection]:
    return acked._open if isinstance(acked, Batch) else (acked._selection,)


def _has(acked: Batch | Message, *states: SettleState) -> bool:
    """Return whether some of its messages have one of these states."""
    return any(selection.positions for selection in in_states(_selections(acked), *states))


def is_finished(message: Message) -> bool:
    """Return True for a message that was acked or moved elsewhere."""
    return _has(message, SettleState.FINISHED)


def _apart(acked: Sequence[Batch | Message]) -> tuple[list[int], list[int]]:
    """Return the places of messages that can be acked with the first one, and of the others."""
    seen: set[tuple[int, int]] = set()
    together: list[int] = []
    others: list[int] = []
    for place, each in enumerate(acked):
        selections = _selections(each)
        named = {(id(selection.held), at) for selection in selections for at in selection.positions}
        count = sum(len(selection.positions) for selection in in_states(selections, SettleState.OPEN))
        if each._settler is acked[0]._settler and count == len(named) and seen.isdisjoint(named):
            together.append(place)
            seen |= named
        else:
            others.append(place)
    return together, others
