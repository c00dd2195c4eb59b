"""Which shards the next micro-batch of a stream claims from, and how much from each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shardq.base.clock import microseconds
from shardq.base.shard import Layout, Shard
from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.removing import due_slices
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.reading import ShardReader
from shardq.storage.listening import Waiter
from shardq.storage.requests import Probe

__all__ = ["Plan", "Planner", "Sizes"]

PAGE_MESSAGES = 10_000
COUNT_AGAIN = 1_000_000  # microseconds
LEAST_FOR_A_TASK = 1_000  # messages: below this a batch is not cut into more tasks
# A task costs about as much as 5,000 rows. More tasks than Spark runs at a time are worth it only when they are long:
LEAST_FOR_A_SLOT, MOST_FOR_A_TASK = 5_000, 100_000  # messages
LONGEST_REST = 1.0  # seconds without a signal until an idle stream probes all the same
# Where the store does not signal, the pause doubles after each probe that finds nothing:
FIRST_POLL, LAST_POLL = 0.005, 0.25  # seconds
MOST_SHARDS = 256  # of a batch that needs no more tasks: each costs the ack a read of the claims there

Plan = dict[tuple[Shard, ...], int]
"""The shards that a task claims from, one after the other, until it has this number of messages."""


class Sizes(msgspec.Struct, frozen=True):
    """How large a batch and its tasks are to be."""

    min_messages: int = 1
    max_delay: int = 0  # microseconds for which a batch waits for that many
    min_tasks: int = 1
    max_tasks: int = 10_000_000
    slots: int | None = None  # tasks that run at a time; None: the limit alone decides, without counting


class Planner:
    """Plans by the offers of the shards.

    It counts due messages up to the limit of a batch, for the number of its tasks.
    """

    def __init__(self, context: QueueContext, name: str, sizes: Sizes | None = None) -> None:
        self._context, self._sizes = context, sizes or Sizes()
        self._reader = ShardReader(context.store, context.name, Ownership(name))
        self._waiter = Waiter(context.store)
        self._idle = False  # the last plan was empty
        self._signalled = False  # something may have come since the last probe
        self._probed_at = self._rest = 0  # an idle stream does not probe again for that long
        self._poll = FIRST_POLL
        self._few_since: int | None = None  # since when there is something, but too little for a batch
        self._count_at = 0  # until then it is not counted again
        self._done: set[Shard] = set()  # with AvailableNow: they have nothing any more that was due in time
        self._excluded: set[Shard] = set()

    def plan(self, most: int, last: int | None, *, patient: bool = False) -> Plan:
        """Plan the claims of each task, the longest due messages first; empty: nothing is due.

        The tasks have nearly equal parts of the limit. The number of messages in a shard is not known, so each task
        has several.

        With ``last``, the same in every call, shards that offer only messages due later are left out. Without, a plan
        after an empty one asks the store when an idle consumer would. That is after a signal, when something is due,
        and else now and then. It first reads as one does, and reads every shard only when it finds something. When it
        is patient, a batch that would be too small is put off.
        """
        settings = self._context.settings
        self._context.live.use()
        self._listen()
        if patient and self._context.store.now() < self._count_at:
            return {}
        if settings.delivery_paused or (last is None and self._idle and not self._stirs(settings.layout)):
            return {}
        offers = self._context.retry(self._reader.offers, settings.layout)
        shards = [offer.shard for offer in offers if last is None or self._offers_in_time(offer, last)]
        self._idle = last is None and not shards
        self._note_probe()
        if patient and self._are_too_few(shards):
            return {}
        return _divided(shards, most, self._sizes, self._wanted_tasks(shards, most))

    def _wanted_tasks(self, shards: Sequence[Shard], most: int) -> int:
        """Return how many tasks are worth their cost."""
        sizes = self._sizes
        if sizes.slots is None:
            return most // LEAST_FOR_A_TASK
        if len(shards) <= sizes.min_tasks or sizes.max_tasks <= sizes.min_tasks:
            return sizes.min_tasks
        due = self._count_ready(shards, most)
        return max(min(sizes.slots, due // LEAST_FOR_A_SLOT), due // MOST_FOR_A_TASK)

    def exclude(self, shards: Iterable[Shard]) -> None:
        """Plan nothing more from these shards in a query with AvailableNow."""
        self._excluded.update(shards)

    def _are_too_few(self, shards: Sequence[Shard]) -> bool:
        """Return whether the batch is to wait; it counts no more often than every second."""
        now, sizes = self._context.store.now(), self._sizes
        if not shards or sizes.min_messages <= 1:
            return False
        since = now if self._few_since is None else self._few_since
        left = since + sizes.max_delay - now
        if left <= 0 or self._count_ready(shards, sizes.min_messages) == sizes.min_messages:
            self._few_since = None
            return False
        self._few_since, self._count_at = since, now + min(left, COUNT_AGAIN)
        return True

    def _count_ready(self, shards: Sequence[Shard], enough: int) -> int:
        """Count the messages of shards, one after the other until it is enough; returns no more than that."""
        found = 0
        for shard in shards:
            found += self._context.retry(self._context.store.count, shard).ready
            if found >= enough:
                return enough
        return found

    def _listen(self) -> None:
        """Note whether a signal came; before a read, so that none is missed that comes while it reads."""
        if self._context.retry(self._waiter.wait, (self._context.name,), 0.0):
            self._signalled = True

    def _stirs(self, layout: Layout) -> bool:
        """Return, by a glance when it is time for one, whether there may be work, or a shard that cannot be read.

        A hint may hide a message from it for as long as from an idle consumer (docs/design/sharding.md).
        """
        rested = self._context.store.now() - self._probed_at
        if not self._signalled and 0 <= rested < self._rest:
            return False
        self._context.retry(self._reader.survey, layout)
        stirs = bool(self._reader.candidates) or bool(self._reader.errors(thorough=True))
        self._note_probe()
        return stirs

    def _note_probe(self) -> None:
        """Rest until something is due, but not long: a signal may be lost, and the layout may change."""
        due, rest = self._reader.seconds_until_due(), LONGEST_REST
        if not self._context.store.capabilities.signals:
            rest = self._poll
            self._poll = min(2 * self._poll, LAST_POLL) if self._idle else FIRST_POLL
        self._rest = microseconds(rest if due is None else min(rest, due))
        self._signalled, self._probed_at = False, self._context.store.now()

    def _offers_in_time(self, offer: Probe, last: int) -> bool:
        """Return whether any message was due by then, also behind newer ones that go first.

        A shard that has nothing of it will not have any later, so it is read in vain only once.
        """
        if offer.shard in self._excluded:
            return False
        if offer.due is not None and offer.due <= last:
            return True
        if offer.shard in self._done:
            return False
        due = due_slices(self._context, offer.shard, PAGE_MESSAGES)
        found = any(is_claimable and piece.due <= last for piece, is_claimable in due)
        if not found:
            self._done.add(offer.shard)
        return found


def _divided(shards: Sequence[Shard], most: int, sizes: Sizes, wanted: int) -> Plan:
    """Deal shards to tasks in turn: each may be the only one that holds much."""
    wanted = max(wanted, sizes.min_tasks)
    chosen = shards[: min(most, max(wanted, MOST_SHARDS))]
    tasks = min(max(wanted, 1), sizes.max_tasks, len(chosen))
    return {tuple(chosen[place::tasks]): _share(most, tasks, place) for place in range(tasks)}


def _share(most: int, tasks: int, place: int) -> int:
    """Divide the whole into nearly equal parts."""
    return most // tasks + (place < most % tasks)
