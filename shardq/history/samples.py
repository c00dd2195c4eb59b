"""Samples of queues, as they are stored: the state of a queue at a moment, and its flow since the sample before."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from shardq.base.shard import DEAD_LETTER_SUFFIX, INTERNAL
from shardq.metrics.measures import Measures
from shardq.topics.names import is_of_subscription

__all__ = ["TOTAL", "Flow", "Row", "Sample", "flows_of", "joined", "peaks_of", "total_of"]

TOTAL = ""
"""The name of the sample of all queues together: no queue has it."""

_COUNTED = ("sent", "received", "acked", "forwarded", "dead_lettered", "expired", "dropped", "failed")
_TIMED = ("wait", "processing")


class Flow(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a queue by what clients did with them, as they reported it. Durations are counts by bucket.

    The buckets are those of :data:`shardq.metrics.measures.BOUNDS`.
    """

    sent: int = 0
    received: int = 0
    acked: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    failed: int = 0
    wait: dict[int, int] = {}
    processing: dict[int, int] = {}

    @property
    def left(self) -> int:
        """Return how many messages left the queue."""
        return self.acked + self.forwarded + self.dead_lettered + self.expired + self.dropped

    def __add__(self, other: Self) -> Flow:
        numbers = (getattr(self, name) + getattr(other, name) for name in _COUNTED)
        return Flow(*numbers, *(_sum(getattr(self, name), getattr(other, name)) for name in _TIMED))


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """A queue at a moment. ``net`` is the change of its depth since it was counted before, ``over`` seconds ago."""

    queue: str
    ready: int = 0
    delayed: int = 0
    in_flight: int = 0
    consumers: int = 0
    late: float = 0.0  # seconds for which a message has been due
    net: int = 0
    flow: Flow = Flow()
    over: float = 0.0

    @property
    def depth(self) -> int:
        """Return how many messages are ready, delayed or in flight, and not in the history."""
        return self.ready + self.delayed + self.in_flight

    def after(self, before: Sample | None, flow: Flow) -> Sample:
        """Return the sample with its flow since the one before. Without one before, the depth has not changed."""
        net = 0 if before is None else self.depth - before.depth
        return msgspec.structs.replace(self, net=net, flow=flow)

    def is_still(self, before: Sample | None) -> bool:
        """Return whether the sample shows nothing that the one before did not."""
        same = before is not None and (self.numbers, self.late) == (before.numbers, before.late)
        return same and self.flow == Flow()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers that change only when something happens."""
        return (self.ready, self.delayed, self.in_flight, self.consumers)

    @property
    def quiet(self) -> Sample:
        """Return the sample without a flow: the state that lasts until the next one."""
        return msgspec.structs.replace(self, net=0, flow=Flow(), over=0.0)


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Samples that were taken together, ``seconds`` after the row before; 0: there was none shortly before."""

    at: int  # microseconds, by the store's clock
    seconds: float
    samples: list[Sample] = []

    def encode(self) -> bytes:
        """Encode the row as it is stored."""
        return zlib.compress(_encode(self), 1)

    @classmethod
    def decode(cls, data: bytes) -> Row | None:
        """Read :meth:`encode`; None for what cannot be read, as of a later version."""
        try:
            return _decode(zlib.decompress(data))
        except (zlib.error, msgspec.MsgspecError):
            return None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Row).decode


def flows_of(now: Measures, before: Measures) -> dict[str, Flow]:
    """Return what has been measured since a moment before, by queue.

    Left out are queues without any of it, and those that shardq makes for itself, but for subscriptions.
    """
    found: dict[str, dict[str, Any]] = {}
    for key, number in now.numbers.items():
        if key[0] in _COUNTED and (added := number - before.numbers.get(key, 0)) > 0:
            found.setdefault(key[1], {})[key[0]] = added
    for key, durations in now.durations.items():
        if key[0] in _TIMED:
            known = before.durations.get(key)
            earlier = known.counts if known is not None else (0,) * len(durations.counts)
            pairs = enumerate(zip(durations.counts, earlier, strict=True))
            if added_to := {place: new - old for place, (new, old) in pairs if new > old}:
                found.setdefault(key[1], {})[key[0]] = added_to
    return {
        queue: Flow(**fields)
        for queue, fields in found.items()
        if queue[:1] not in ("", "_") or is_of_subscription(queue)
    }


def joined(samples: Iterable[Mapping[str, Flow]]) -> dict[str, Flow]:
    """Add up reports, by queue."""
    found: dict[str, Flow] = {}
    for flows in samples:
        for queue, flow in flows.items():
            found[queue] = found[queue] + flow if queue in found else flow
    return found


def total_of(samples: Iterable[Sample]) -> Sample:
    """Return the sample of all queues together that listings show, but for those of dead letters.

    No consumer waits for dead letters. The messages of subscriptions are copies, in queues that no listing shows.
    """
    total = Sample(TOTAL)
    for each in samples:
        if not (each.queue.endswith(DEAD_LETTER_SUFFIX) or each.queue.startswith(INTERNAL)):
            total = Sample(
                TOTAL,
                total.ready + each.ready,
                total.delayed + each.delayed,
                total.in_flight + each.in_flight,
                total.consumers + each.consumers,
                max(total.late, each.late),
                total.net + each.net,
                total.flow + each.flow,
            )
    return total


def peaks_of(rows: Iterable[Row], known: Mapping[str, Sample]) -> dict[str, Sample]:
    """Return one sample for some rows: the highest of each state, and the sum of all flows.

    A queue that is in no row has not changed meanwhile: it has the ``known`` state.
    """
    found: dict[str, Sample] = {}
    for row in rows:
        for each in row.samples:
            before = found.get(each.queue)
            found[each.queue] = each if before is None else _higher(before, each)
    return {**known, **found}


def _higher(one: Sample, other: Sample) -> Sample:
    return Sample(
        one.queue,
        max(one.ready, other.ready),
        max(one.delayed, other.delayed),
        max(one.in_flight, other.in_flight),
        max(one.consumers, other.consumers),
        max(one.late, other.late),
        one.net + other.net,
        one.flow + other.flow,
    )


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {**one, **{place: one.get(place, 0) + count for place, count in other.items()}}
