"""The options of a worker, and which handler works on the messages of which queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict, TypeVar

import msgspec

from shardq.base.codec import Codec, check_codec, codec_named
from shardq.base.texts import kind_of, shown
from shardq.client.consumer import MAX_BATCH
from shardq.client.outcome import LONGEST_DELAY, Backoff
from shardq.client.patterns import QueuePattern
from shardq.client.queue import Queue
from shardq.core.limits.permits import permits_queue
from shardq.core.receiving.several_queues import check_queues, scheduler_of
from shardq.core.settings import QueueSettings, check_number
from shardq.errors import InvalidSetting
from shardq.worker.policy import OnError, check_on_error

__all__ = ["LoopKeywords", "SharedKeywords", "WorkerKeywords", "WorkerOptions", "assign", "check_opened"]

MAX_IDLE_SECONDS = 7 * 86_400.0
MAX_THREADS = 1_000


class LoopKeywords(TypedDict, total=False):
    """The fields of :class:`WorkerOptions` that workers of handlers, tasks and pipelines have, as keyword arguments."""

    batch: int
    retry_delay: float | None
    max_retry_delay: float | None
    keep_leases: bool
    idle_exit: float | None
    semaphore: str | None
    weights: Mapping[str, float] | None
    order: Literal["fair", "strict"]


class SharedKeywords(LoopKeywords, total=False):
    """The fields of :class:`WorkerOptions` that mean the same for every handler, as keyword arguments."""

    codec: Codec | str
    on_error: OnError
    prefetch: int
    threads: int


class WorkerKeywords(SharedKeywords, total=False):
    """The fields of :class:`WorkerOptions` as keyword arguments, for type checkers."""

    by_batch: bool


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker receives, retries and ends. Times are seconds. Raises InvalidSetting.

    - ``by_batch``: the handler takes a whole :class:`~shardq.Batch` instead of one message.
    - ``batch``: messages of one bulk read, 1 to 100,000.
    - ``codec``: a codec, or the name of one: ``bytes``, ``text``, ``json``, ``msgpack``. A pool pickles it, so the
      codecs that shardq ships are given to a pool by name.
    - ``retry_delay``: until a message whose handler raised is delivered again; doubles with each delivery, up to
      ``max_retry_delay``, and half of it is random. None: those of the queue.
    - ``on_error``: the outcome of a message whose handler raised an error. It is a mapping of types of errors to
      outcomes, in which the most special class counts. Or it is a function of message and error that returns an
      outcome or None, or the name of such a function, ``package.module:function``. Anything else is a
      :class:`~shardq.Retry`.
    - ``keep_leases``: extend the leases of received messages while the handler runs.
    - ``idle_exit``: end when nothing was due for this time; delayed messages do not count. None: never.
    - ``prefetch``: messages claimed ahead, of each queue. With ``threads`` there is none: such a worker receives ahead
      as much as it works in half a second.
    - ``threads``: how many messages, or batches, are worked at a time in one process, 1 to 1,000.
    - ``semaphore``: the name of a semaphore of the queue's store. A permit of it is held for each call of the handler.
      Messages that wait for one are in flight: to let them wait in the queue, use its ``max_in_flight``.
    - ``weights``, ``order``: how several queues take turns; see :meth:`shardq.Client.consumer`.
    """

    by_batch: bool = False
    batch: int = 100
    codec: Codec | str = "bytes"
    retry_delay: float | None = None
    max_retry_delay: float | None = None
    on_error: OnError = None
    keep_leases: bool = True
    idle_exit: float | None = None
    prefetch: int = 0
    threads: int = 1
    semaphore: str | None = None
    weights: Mapping[str, float] | None = None
    order: Literal["fair", "strict"] = "fair"

    def __post_init__(self) -> None:
        check_number("batch", self.batch, 1, MAX_BATCH, whole=True)
        check_number("prefetch", self.prefetch, 0, MAX_BATCH, whole=True)
        check_number("threads", self.threads, 1, MAX_THREADS, whole=True)
        if self.prefetch and self.threads > 1:
            raise InvalidSetting(
                f"prefetch={self.prefetch} with threads={self.threads}: a worker with threads receives ahead "
                "automatically; leave prefetch out"
            )
        if self.idle_exit is not None:
            check_number("idle_exit", self.idle_exit, 0.0, MAX_IDLE_SECONDS)
        check_codec(self.body_codec)
        for name, value in (("retry_delay", self.retry_delay), ("max_retry_delay", self.max_retry_delay)):
            if value is not None:
                check_number(name, value, 0.0, LONGEST_DELAY)
        check_on_error(self.on_error)
        named = tuple(self.weights) if isinstance(self.weights, Mapping) else ()
        scheduler_of(named, self.weights, self.order)  # which refuses what is wrong whatever the queues are
        if self.semaphore is not None:
            _check_semaphore_name(self.semaphore)

    @property
    def body_codec(self) -> Codec:
        """The codec, also where it was given by name."""
        return codec_named(self.codec) if isinstance(self.codec, str) else self.codec

    def backoff(self, settings: QueueSettings) -> Backoff:
        """Return the delays before a failed message of a queue with these settings is delivered again."""
        first, longest = self.retry_delay, self.max_retry_delay
        return Backoff(
            settings.retry_delay if first is None else first,
            settings.max_retry_delay if longest is None else longest,
        )


def _check_semaphore_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidSetting(f"semaphore={shown(name)} is {kind_of(name)}: give the name of a semaphore")
    permits_queue(name)


H = TypeVar("H")


def assign(queues: Sequence[str], handler: H | Mapping[str, H], options: WorkerOptions) -> dict[str, H]:
    """Return the handler of each queue: one for all, or those that are given by queue.

    Raises InvalidSetting, or InvalidName, for queues that a worker cannot receive from with these options.
    """
    scheduler_of(check_queues(queues), options.weights, options.order)
    if not isinstance(handler, Mapping):
        return dict.fromkeys(queues, handler)
    if unknown := [name for name in handler if name not in queues]:
        raise InvalidSetting(
            f"there is a handler for {unknown[0]!r}, which is not among the queues: add it to them"
        )
    if missing := [name for name in queues if name not in handler]:
        raise InvalidSetting(f"queue {missing[0]!r} has no handler: name one for each queue, or one for all")
    return {name: handler[name] for name in queues}


def check_opened(queues: Sequence[Queue | QueuePattern]) -> list[Queue | QueuePattern]:
    """Return the queues of a worker as a list. Raises InvalidSetting for an object that is not an opened queue."""
    if (
        isinstance(queues, str)
        or not isinstance(queues, Iterable)
        or not all(isinstance(queue, Queue | QueuePattern) for queue in queues)
    ):
        raise InvalidSetting(
            f"queues={shown(queues)}: a worker takes opened queues, such as client.queue('orders')"
        )
    return list(queues)
