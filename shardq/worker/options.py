"""The options of a worker, which a pool hands on to each of its processes."""

from __future__ import annotations

import random
from typing import TypedDict

import msgspec

from shardq.codec import Codec, check_codec, codec_named
from shardq.settings import check_number

__all__ = ["Backoff", "SharedKeywords", "WorkerKeywords", "WorkerOptions"]

MAX_BATCH = 100_000
MAX_IDLE_SECONDS = 7 * 86_400.0
_LONGEST_DELAY = 7 * 86_400.0
_MAX_DOUBLINGS = 60


class Backoff(msgspec.Struct, frozen=True):
    """A delay that doubles from ``first`` seconds up to ``longest``. Half of it is random, to spread retries out."""

    first: float
    longest: float

    def __post_init__(self) -> None:
        check_number("retry_delay", self.first, 0.0, _LONGEST_DELAY)
        check_number("max_retry_delay", self.longest, 0.0, _LONGEST_DELAY)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number, counted from 1."""
        doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * random.uniform(0.5, 1.0)


class SharedKeywords(TypedDict, total=False):
    """The fields of :class:`WorkerOptions` that mean the same for every handler, as keyword arguments."""

    batch: int
    codec: Codec | str
    retry_delay: float
    max_retry_delay: float
    keep_leases: bool
    idle_exit: float | None
    prefetch: int


class WorkerKeywords(SharedKeywords, total=False):
    """The fields of :class:`WorkerOptions` as keyword arguments, for type checkers."""

    by_batch: bool


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker receives, retries and ends. Times are seconds. Raises InvalidSetting.

    - ``by_batch``: the handler takes a whole :class:`~shardq.Batch` instead of one message.
    - ``batch``: messages of one bulk read, 1 to 100,000.
    - ``codec``: a codec, or the name of one: ``bytes``, ``text``, ``json``, ``msgpack``. A pool pickles it, so
      the codecs that shardq ships are given to a pool by name.
    - ``retry_delay``: until a message whose handler raised is delivered again; doubles with each delivery, up to
      ``max_retry_delay``, and half of it is random.
    - ``keep_leases``: extend the leases of received messages while the handler runs.
    - ``idle_exit``: end when the queue has been empty for so long. None: never.
    - ``prefetch``: messages claimed ahead.
    """

    by_batch: bool = False
    batch: int = 100
    codec: Codec | str = "bytes"
    retry_delay: float = 1.0
    max_retry_delay: float = 300.0
    keep_leases: bool = True
    idle_exit: float | None = None
    prefetch: int = 0

    def __post_init__(self) -> None:
        check_number("batch", self.batch, 1, MAX_BATCH, whole=True)
        if self.idle_exit is not None:
            check_number("idle_exit", self.idle_exit, 0.0, MAX_IDLE_SECONDS)
        check_codec(self.body_codec)
        Backoff(self.retry_delay, self.max_retry_delay)  # checks both

    @property
    def body_codec(self) -> Codec:
        """The codec, also where it was given by name."""
        return codec_named(self.codec) if isinstance(self.codec, str) else self.codec

    @property
    def backoff(self) -> Backoff:
        """The delays before a failed message is delivered again."""
        return Backoff(self.retry_delay, self.max_retry_delay)
