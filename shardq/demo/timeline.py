"""A run cut into equal steps of time: messages sent and acked, and how long they took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from shardq.demo.records import Ack, Harvest
from shardq.demo.run import Run

__all__ = ["Latency", "Timeline", "percentile", "read_timeline"]

STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # seconds
MOST_STEPS = 60


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of the time from send to ack, in seconds, of the messages acked around one moment."""

    at: float
    p50: float
    p95: float
    p99: float


class Timeline(msgspec.Struct, frozen=True):
    """A run by steps of so many seconds; moments are seconds since the start. No acks in a step: no latency."""

    step: float
    sent: list[float]  # per second
    acked: list[float]  # per second
    latency: list[Latency | None]
    overall: Latency
    sending_seconds: float  # until the last send was confirmed
    worked_once: int  # messages acked at their first delivery
    working_seconds: float  # until the last ack of those
    total_seconds: float  # until the last ack of all
    killed_at: float | None
    back_at: float | None  # when the first of what the killed worker held was received again


def read_timeline(run: Run, harvest: Harvest) -> Timeline:
    """Cut a run into steps."""
    start = run.started_at
    sends = [(record.sent_at - start, record.messages) for record in harvest.sent]
    acks = [(ack.acked_at - start, ack.acked) for worker in harvest.workers for ack in worker.acks.values()]
    waits, firsts = _waits(harvest, start), _first_acks(harvest)
    total = max((at for at, _ in acks), default=0.0)
    step = next((step for step in STEPS if total <= step * MOST_STEPS), STEPS[-1])
    count = int(total // step) + 1
    return Timeline(
        step=step,
        sent=_rates(sends, step, count),
        acked=_rates(acks, step, count),
        latency=_latencies(waits, step, count),
        overall=_latency(waits) or Latency(0.0, 0.0, 0.0, 0.0),
        sending_seconds=max((at for at, _ in sends), default=0.0),
        worked_once=sum(ack.acked for ack in firsts),
        working_seconds=max((ack.acked_at - start for ack in firsts), default=0.0),
        total_seconds=total,
        killed_at=run.kill.at - start if run.kill else None,
        back_at=_back_at(run, harvest),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of an ordered sequence does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _waits(harvest: Harvest, start: float) -> list[tuple[float, float]]:
    """When each message was acked, and its time from send to ack; batches that lost a lease are left out."""
    waits: list[tuple[float, float]] = []
    for worker in harvest.workers:
        acked_at = {number: ack.acked_at for number, ack in worker.acks.items() if not ack.lost}
        done = [result for result in worker.results if result.batch in acked_at]
        moments = [acked_at[result.batch] for result in done]
        waits += [(at - start, at - result.sent_at) for at, result in zip(moments, done, strict=True)]
    return waits


def _rates(events: Iterable[tuple[float, int]], step: float, count: int) -> list[float]:
    totals = [0] * count
    for at, messages in events:
        totals[min(count - 1, max(0, int(at // step)))] += messages
    return [total / step for total in totals]


def _latencies(waits: Iterable[tuple[float, float]], step: float, count: int) -> list[Latency | None]:
    steps: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for at, wait in waits:
        steps[min(count - 1, max(0, int(at // step)))].append((at, wait))
    return [_latency(found) for found in steps]


def _latency(waits: list[tuple[float, float]]) -> Latency | None:
    if not waits:
        return None
    ordered = sorted(wait for _, wait in waits)
    middle = sum(at for at, _ in waits) / len(waits)
    return Latency(middle, *(percentile(ordered, share) for share in (0.5, 0.95, 0.99)))


def _first_acks(harvest: Harvest) -> list[Ack]:
    """The acks of batches in which every message was new."""
    acks: list[Ack] = []
    for worker in harvest.workers:
        again = {result.batch for result in worker.results if result.deliveries > 1}
        acks += [ack for number, ack in worker.acks.items() if number not in again]
    return acks


def _back_at(run: Run, harvest: Harvest) -> float | None:
    if run.kill is None:
        return None
    moments = [result.received_at for result in harvest.results() if result.deliveries > 1]
    return min(moments) - run.started_at if moments else None
