"""Which shards the next micro-batch of a stream claims from, and how much from each."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.browsing import slices
from shardq.context.queue_context import QueueContext
from shardq.sharding.ownership import Ownership
from shardq.sharding.reading import ShardReader
from shardq.sharding.ring import Layout
from shardq.sharding.shard import Shard
from shardq.storage.requests import EntryState, Peek, Probe

__all__ = ["Plan", "Planner"]

PAGE_MESSAGES = 10_000
LEAST_FOR_A_TASK = 1_000  # messages: below this a batch is not cut into more tasks
MOST_SHARDS = 256  # of a batch that needs no more tasks: each costs the ack a look at what was claimed there

Plan = dict[tuple[Shard, ...], int]
"""The shards that a task claims from, one after the other, until it has so many messages."""


class Planner:
    """Plans by what the shards offer, without counting what waits: a plan costs the same for any backlog."""

    def __init__(self, context: QueueContext, name: str) -> None:
        self._context = context
        self._reader = ShardReader(context.store, context.name, Ownership(name))
        self._idle = False  # the last plan was empty
        self._done: set[Shard] = set()  # with AvailableNow: they have nothing any more that was due in time

    def plan(self, most: int, last: int | None) -> Plan:
        """What each task is to claim, what is due longest first; empty: nothing is due.

        The tasks have nearly equal parts of the limit. What a shard holds is not known, so each has several.

        With ``last``, the same in every call, shards that offer only what was due later are left out; without, a plan
        after an empty one first looks as an idle consumer does, and at every shard only when it finds something.
        """
        settings = self._context.settings
        if settings.delivery_paused or (last is None and self._idle and not self._stirs(settings.layout)):
            return {}
        offers = self._context.retry(self._reader.offers, settings.layout)
        shards = [offer.shard for offer in offers if last is None or self._offers_in_time(offer, last)]
        self._idle = not shards
        return _divided(shards, most)

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


def _divided(shards: Sequence[Shard], most: int) -> Plan:
    """Deal shards to tasks in turn: each may be the only one that holds much."""
    wanted = max(1, most // LEAST_FOR_A_TASK)
    chosen = shards[: min(most, max(wanted, MOST_SHARDS))]
    tasks = min(wanted, len(chosen))
    return {tuple(chosen[place::tasks]): _share(most, tasks, place) for place in range(tasks)}


def _share(most: int, tasks: int, place: int) -> int:
    """The whole in nearly equal parts."""
    return most // tasks + (place < most % tasks)
