"""A run in numbers."""

from __future__ import annotations

import msgspec

from shardq.demo.check import Check
from shardq.demo.harvest import Harvest
from shardq.demo.repeats import Repeats, find_repeats
from shardq.demo.run import Run
from shardq.demo.spread import Spread
from shardq.demo.timeline import Latency, Timeline

__all__ = ["Summary", "summarise"]


class Summary(msgspec.Struct, frozen=True):
    """What ``--json`` prints. Durations are seconds; rates are messages per second."""

    good: bool
    queue: str
    messages: int
    producers: int
    workers: int
    seconds: float  # from the start to the last ack
    sent_per_second: float  # until the last send was confirmed
    worked_per_second: float  # of messages delivered once, until the last of their acks
    latency: Latency
    killed_worker: int | None
    killed_at: float | None
    held_when_killed: int
    back_at: float | None
    redelivered: int
    seen_twice: Repeats
    spread: float  # the fullest shard over the mean
    check: Check
    plots: list[str]


def summarise(run: Run, harvest: Harvest, timeline: Timeline, spread: Spread, check: Check) -> Summary:
    """Put a run into numbers; its plots are not drawn yet."""
    plan, kill = run.plan, run.kill
    return Summary(
        good=check.good,
        queue=plan.queue,
        messages=plan.messages,
        producers=plan.producers,
        workers=plan.workers,
        seconds=timeline.total_seconds,
        sent_per_second=_rate(plan.messages, timeline.sending_seconds),
        worked_per_second=_rate(timeline.worked_once, timeline.working_seconds),
        latency=timeline.overall,
        killed_worker=kill.place if kill else None,
        killed_at=timeline.killed_at,
        held_when_killed=kill.held if kill else 0,
        back_at=timeline.back_at,
        redelivered=run.redelivered,
        seen_twice=find_repeats(harvest),
        spread=spread.imbalance,
        check=check,
        plots=[],
    )


def _rate(messages: int, seconds: float) -> float:
    return messages / seconds if seconds else 0.0
