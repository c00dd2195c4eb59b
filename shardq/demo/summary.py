"""A run in numbers, and how its messages were spread over the shards of its queue."""

from __future__ import annotations

import msgspec

from shardq.demo.check import Check, Repeats, find_repeats
from shardq.demo.plan import Plan
from shardq.demo.records import Harvest
from shardq.demo.run import Run
from shardq.demo.timeline import Latency, Timeline

__all__ = ["Spread", "Summary", "read_spread", "summarise"]


class Spread(msgspec.Struct, frozen=True):
    """Messages sent by time shard and shard; the time shards are those of the ring, written or not."""

    messages: list[list[int]]

    @property
    def by_shard(self) -> list[int]:
        """Messages of each shard, over all time shards."""
        return [sum(column) for column in zip(*self.messages, strict=True)]

    @property
    def written(self) -> list[int]:
        """The time shards that have messages."""
        return [time_shard for time_shard, row in enumerate(self.messages) if any(row)]

    @property
    def mean(self) -> float:
        """Messages of a shard on average."""
        return sum(self.by_shard) / len(self.by_shard)

    @property
    def imbalance(self) -> float:
        """The fullest shard's messages over the average: 1.0 is an even spread."""
        return max(self.by_shard) / self.mean if self.mean else 1.0


def read_spread(plan: Plan, harvest: Harvest) -> Spread:
    """Count the messages of each shard, by what the producers wrote down."""
    messages = [[0] * plan.shards for _ in range(plan.time_shards)]
    for record in harvest.sent:
        messages[record.time_shard][record.shard] += record.messages
    return Spread(messages)


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
