"""Which shards the next micro-batch of a stream claims from, and how much from each."""

from __future__ import annotations

from shardq.delivery.context import QueueContext
from shardq.sharding.ownership import Ownership
from shardq.sharding.reading import ShardReader
from shardq.sharding.shard import Shard

__all__ = ["Planner"]

LEAST_FROM_A_SHARD = 1_000  # messages: below this a batch is not cut over more shards


class Planner:
    """Plans by what the shards offer, without counting what waits: a plan costs the same for any backlog."""

    def __init__(self, context: QueueContext, name: str) -> None:
        self._context = context
        self._reader = ShardReader(context.store, context.name, Ownership(name))

    def plan(self, most: int, last: int | None) -> dict[Shard, int]:
        """How many messages to claim from each shard, what is due longest first; empty: nothing is due.

        With ``last`` shards that offer only what was due later are left out.
        """
        settings = self._context.settings
        if settings.delivery_paused:
            return {}
        offers = self._context.retry(self._reader.offers, settings.layout)
        shards = [offer.shard for offer in offers if last is None or (offer.due or 0) <= last]
        chosen = shards[: max(1, most // LEAST_FROM_A_SHARD)]
        return {shard: _share(most, len(chosen), place) for place, shard in enumerate(chosen)}


def _share(most: int, shards: int, place: int) -> int:
    """The whole in nearly equal parts."""
    return most // shards + (place < most % shards)
