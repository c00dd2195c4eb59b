"""Which shards the next micro-batch of a stream claims from, and how much from each."""

from __future__ import annotations

from shardq.browsing import slices
from shardq.context.queue_context import QueueContext
from shardq.sharding.ownership import Ownership
from shardq.sharding.reading import ShardReader
from shardq.sharding.ring import Layout
from shardq.sharding.shard import Shard
from shardq.storage.requests import EntryState, Peek, Probe

__all__ = ["Planner"]

PAGE_MESSAGES = 10_000
LEAST_FROM_A_SHARD = 1_000  # messages: below this a batch is not cut over more shards


class Planner:
    """Plans by what the shards offer, without counting what waits: a plan costs the same for any backlog."""

    def __init__(self, context: QueueContext, name: str) -> None:
        self._context = context
        self._reader = ShardReader(context.store, context.name, Ownership(name))
        self._idle = False  # the last plan was empty
        self._done: set[Shard] = set()  # with AvailableNow: they have nothing any more that was due in time

    def plan(self, most: int, last: int | None) -> dict[Shard, int]:
        """How many messages to claim from each shard, what is due longest first; empty: nothing is due.

        With ``last``, the same in every call, shards that offer only what was due later are left out; without, a plan
        after an empty one first looks as an idle consumer does, and at every shard only when it finds something.
        """
        settings = self._context.settings
        if settings.delivery_paused or (last is None and self._idle and not self._stirs(settings.layout)):
            return {}
        offers = self._context.retry(self._reader.offers, settings.layout)
        shards = [offer.shard for offer in offers if last is None or self._offers_in_time(offer, last)]
        self._idle = not shards
        chosen = shards[: max(1, most // LEAST_FROM_A_SHARD)]
        return {shard: _share(most, len(chosen), place) for place, shard in enumerate(chosen)}

    def _stirs(self, layout: Layout) -> bool:
        """Tell by a glance whether there may be work, or a shard that cannot be read.

        A hint may hide a message from it for as long as from an idle consumer (decision 22).
        """
        self._context.retry(self._reader.survey, layout)
        return self._reader.has_candidates or bool(self._reader.errors(thorough=True))

    def _offers_in_time(self, offer: Probe, last: int) -> bool:
        """Tell whether there is anything that was due by then: behind what is newer and goes first, if need be.

        A shard that has nothing of it will not have any later, so it is looked through in vain only once.
        """
        if offer.due is not None and offer.due <= last:
            return True
        if offer.shard in self._done:
            return False
        found = any(
            piece.state is EntryState.READY and piece.due <= last
            for piece in slices(self._context, Peek(offer.shard, PAGE_MESSAGES, bodies=False))
        )
        if not found:
            self._done.add(offer.shard)
        return found


def _share(most: int, shards: int, place: int) -> int:
    """The whole in nearly equal parts."""
    return most // shards + (place < most % shards)
