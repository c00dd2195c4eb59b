"""Several queues of one consumer: whose turn it is, which are left out, and when each is swept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from shardq.base.log import Log
from shardq.base.patterns import NamePattern, is_pattern
from shardq.base.shard import check_queue_name
from shardq.base.texts import shown
from shardq.base.waits import BackgroundThread
from shardq.core.context.retry import Retry
from shardq.core.receiving.claiming import QueueClaims
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting, OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable
from shardq.storage.store import Store

__all__ = [
    "FailedQueues",
    "QueueScheduler",
    "StrictOrder",
    "Sweeping",
    "WeightedOrder",
    "check_queues",
    "scheduler_of",
]

_log = Log(__name__)
T = TypeVar("T")

LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1_000_000.0
SKIP_SECONDS = 1.0  # until a queue that failed is tried again
SWEEP_SECONDS = 0.05  # after which messages come first again
FEW_QUEUES = 5  # that are swept once a minute each; more of them one by one,
SWEEP_PAUSE = 12.0  # seconds apart, or in as many turns as
LONGEST_SWEEP_TURN = 600.0  # seconds give, for all of them
CLOSING_SECONDS = 5.0  # for which the end of who receives waits for a sweep that is under way


class QueueScheduler(Protocol):
    """Decides from which queue a consumer receives next."""

    def order(self) -> Sequence[str]:
        """Return all queues, the one whose turn it is first. The first of them that has messages is received from."""
        ...

    def took(self, queue: str, messages: int) -> None:
        """Note that this number of messages of the queue was received."""
        ...

    def follow(self, queues: Mapping[str, str]) -> None:
        """Decide among these queues from now on; each with the name or pattern by which it was given."""
        ...


class StrictOrder:
    """The first queue that has messages, always."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def order(self) -> Sequence[str]:
        """Return the queues as they were given."""
        return self._queues

    def took(self, queue: str, messages: int) -> None:
        """Change nothing."""

    def follow(self, queues: Mapping[str, str]) -> None:
        """Take over the queues in their order."""
        self._queues = tuple(queues)


class WeightedOrder:
    """Queues that have messages share the receiving in proportion to their weights, counted in messages.

    This is start-time fair queueing (Goyal, Vin and Cheng, 1996). Each queue has a moment up to which it has had its
    share. Received messages move that on, the further the smaller the weight, and the queue with the earliest moment
    is next. A queue that was empty begins at the present moment: it saves up nothing, and owes nothing. Threads may
    share it.

    >>> order = WeightedOrder({"a": 3, "b": 1})
    >>> taken = ""
    >>> for _ in range(8):
    ...     queue = order.order()[0]
    ...     order.took(queue, 1)
    ...     taken += queue
    >>> taken
    'abaaabaa'
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._given = self._weights = dict(weights)
        self._until = dict.fromkeys(weights, 0.0)
        self._present = 0.0
        self._lock = threading.Lock()

    def order(self) -> Sequence[str]:
        """Return the queues, the one with the earliest moment first."""
        with self._lock:
            return sorted(self._until, key=lambda queue: (self._begin(queue), self._until[queue]))

    def took(self, queue: str, messages: int) -> None:
        """Move the queue's moment on."""
        with self._lock:
            if queue in self._until:  # else it has left since
                self._present = self._begin(queue)
                self._until[queue] = self._present + messages / self._weights[queue]

    def follow(self, queues: Mapping[str, str]) -> None:
        """Take over the queues, each with the weight that its name or pattern was given. New ones begin now."""
        with self._lock:
            self._weights = {name: self._given[text] for name, text in queues.items()}
            self._until = {name: self._until.get(name, 0.0) for name in queues}

    def _begin(self, queue: str) -> float:
        return max(self._present, self._until[queue])


def check_queues(queues: Sequence[str]) -> Sequence[str]:
    """Return the names and patterns of several queues, or raise InvalidSetting or InvalidName."""
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
        raise InvalidSetting(f"queues={shown(queues)}: give a list of names, such as ['orders', 'letters']")
    for place, queue in enumerate(queues):
        name = NamePattern.parse(queue).text if is_pattern(queue) else check_queue_name(queue)
        if name in queues[:place]:
            raise InvalidSetting(f"queue {queue!r} is named twice: name each once, and give it a weight")
    return queues


def scheduler_of(queues: Sequence[str], weights: Mapping[str, float] | None, order: str) -> QueueScheduler:
    """Return the scheduler of queues, or raise InvalidSetting."""
    if order not in ("fair", "strict"):
        raise InvalidSetting(f"order={shown(order)} is unknown: use 'fair' or 'strict'")
    if order == "strict" and weights is not None:
        raise InvalidSetting("order='strict' knows no weights: leave them out, or use order='fair'")
    if order == "strict":
        return StrictOrder(queues)
    if not isinstance(weights, Mapping | None):
        raise InvalidSetting(
            f"weights={shown(weights)}: give a weight by the name of its queue, such as {{'orders': 3}}"
        )
    for queue, weight in (weights or {}).items():
        if queue not in queues:
            raise InvalidSetting(
                f"weights name {shown(queue)}, which is not among the queues: add it to them"
            )
        check_number(f"weight of queue {queue!r}", weight, LEAST_WEIGHT, MOST_WEIGHT)
    return WeightedOrder({queue: (weights or {}).get(queue, 1.0) for queue in queues})


class _Failure(msgspec.Struct, frozen=True):
    """Why a queue is left out, and since when."""

    error: ShardqError
    since: float


class FailedQueues:
    """Which queues are left out, and why. Of one queue alone errors are raised.

    Where the queues ``follow`` patterns, none is alone, and one that was deleted is not an error.
    """

    def __init__(
        self,
        queues: Collection[str],
        retry: Retry,
        timer: Callable[[], float] = time.monotonic,
        *,
        follow: bool = False,
    ) -> None:
        self._queues, self._retry, self.timer, self._follow = queues, retry, timer, follow
        self._failures: dict[str, _Failure] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._failures

    def __bool__(self) -> bool:
        return bool(self._failures)

    def try_(
        self, queue: QueueClaims, do: Callable[[], T], *, instead: T, patience: float | None = None
    ) -> T:
        """Do it. If there are other queues, one that fails is left out, unless a message of it may have been acked."""
        if len(self._queues) == 1 and not self._follow:
            return do()
        try:
            with self._retry.within(patience):
                return do()
        except (StoreUnavailable, OutcomeUnknown, QueueNotFound) as error:
            if queue.may_have_finished:
                raise
            self.add(queue.name, error)
            return instead

    def add(self, name: str, error: ShardqError) -> None:
        """Leave a queue out."""
        if name not in self._failures:
            _log.warning("queue %s is left out until it can be read: %s", name, error)
        self._failures[name] = _Failure(error, self.timer())

    def forget(self, names: Iterable[str]) -> None:
        """Forget queues that the consumer does not receive from any more."""
        for name in names:
            self._failures.pop(name, None)

    def rests(self, name: str) -> bool:
        """Return True for a moment after a queue has failed."""
        failure = self._failures.get(name)
        return failure is not None and self.timer() - failure.since < SKIP_SECONDS

    def take_back(self, read: Collection[str], began: float) -> None:
        """Leave out no longer those of the queues that did not fail since then."""
        for name in read:
            failure = self._failures.get(name)
            if failure is not None and failure.since < began:
                del self._failures[name]
                _log.warning("queue %s can be read again", name)

    def raise_if_any(self, *, thorough: bool) -> None:
        """Raise the error of one that is left out: unless it is thorough, only if all are."""
        found = [self._failures[name].error for name in self._queues if name in self._failures]
        errors = [error for error in found if not (self._follow and isinstance(error, QueueNotFound))]
        if errors and (thorough or len(errors) == len(self._queues)):
            raise min(errors, key=lambda error: error.retryable)


class Sweeping:
    """Sweeps the queues of one consumer when it is their turn.

    A sweep reads every shard, which takes up to seconds over a network. Where the store takes several requests at once
    a thread sweeps, and receiving continues. Elsewhere a sweep that finds much is broken off after a moment, and the
    next calls continue it.
    """

    def __init__(
        self,
        queues: Collection[QueueClaims],
        failed: FailedQueues,
        store: Store,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queues, self._failed, self.timer = queues, failed, timer
        self._aside = store.capabilities.requests_at_once > 1
        self._swept_at = -1e9
        self._thread = BackgroundThread("shardq-sweep")

    def attend(self, now: int) -> None:
        """Sweep queues whose time has come: all, or as many as it takes no longer than a moment to begin with.

        Of many queues one, the one that was not swept for the longest time, and the next some seconds later.
        """
        due = [queue for queue in self._queues if queue.has_to_sweep(now)]
        if not due or not self._thread.has_ended:
            return
        began, many = self.timer(), len(self._queues) > FEW_QUEUES
        pause = min(SWEEP_PAUSE, LONGEST_SWEEP_TURN / len(self._queues)) if many else 0.0
        is_pausing = began - self._swept_at < pause
        due = [
            queue
            for queue in sorted(due, key=lambda queue: queue.upkeep.swept_at)
            if queue.name not in self._failed and (queue.upkeep.is_broken_off or not is_pausing)
        ]
        if not due:
            return
        if not is_pausing:
            self._swept_at = began
        if self._aside:
            self._thread.run(partial(_sweep, due[:1] if many else due, now))
            return
        for queue in due:
            sweep = partial(queue.upkeep.sweep, now, large=queue.filter.seen_large, seconds=SWEEP_SECONDS)
            self._failed.try_(queue, sweep, instead=None)
            if many or self.timer() - began > SWEEP_SECONDS:
                return  # the others are swept by the next calls

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        self._thread.join(CLOSING_SECONDS)


def _sweep(queues: Iterable[QueueClaims], now: int) -> None:
    for queue in queues:
        with suppress(QueueNotFound):  # whoever receives finds it out
            queue.upkeep.sweep(now, large=queue.filter.seen_large)
