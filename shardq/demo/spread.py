"""How the messages of a run were spread over the shards of its queue."""

from __future__ import annotations

import msgspec

from shardq.demo.harvest import Harvest
from shardq.demo.plan import Plan

__all__ = ["Spread", "read_spread"]


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
