"""Storing copies in the queue of a subscription once per round, and removing those from before a rewind.

With the copies of a round goes a **marker**, in the same step: a message that is due in ten years, so it is never
received. It is removed when the round has ended. So where a round is repeated, the marker says whether the copies were
stored, also when they were received and finished hours ago.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from shardq.base.outgoing_message import DEFAULT_PRIORITY, Bundle
from shardq.base.shard import Layout, Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.sending.appending import append
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.errors import QueueNotFound, StoreUnavailable
from shardq.storage.bundles import BundleData, encode_bundle, made_at, repeatable_bundle_id
from shardq.storage.requests import Peek
from shardq.topics.envelopes import Copies, Envelope, copies_of
from shardq.topics.names import queue_of
from shardq.topics.state import RELAY, Round, SubscriptionRecord, TopicState

__all__ = ["Targets", "empty"]

_SAME_ID = 600_000_000  # microseconds; for which a store surely knows an id after its message is finished
_TEN_YEARS = 10 * 365 * 86_400_000_000
_MARK = encode_bundle(BundleData([b""]))
_LAST_PRIORITY = 9
_PAGE_MESSAGES = 1_000


class CopyTarget(msgspec.Struct, frozen=True):
    """Where the copies of a round go in the queue of one subscription. The same for all who carry out the round."""

    queue: str
    layout: Layout
    at: int  # the round's moment
    due: int = 0

    @property
    def shard(self) -> Shard:
        """One shard, so that all copies are stored in one step. The next round goes to the next one, nearly."""
        return Shard(self.queue, self.layout.time_shard(self.at), self._id(0)[-1] % self.layout.shards)

    def store(self, context: QueueContext, copies: Sequence[Copies], *, again: bool) -> None:
        """Store the copies, and the marker; not ``again`` where the marker is.

        Raises StoreUnavailable when it is to be done again, and QueueNotFound when the subscription is gone.
        """
        looked_at = context.store.now() if again else self.at
        if again and context.retry(context.store.find, self.shard, self._id(0), 0) is not None:
            return
        bundles = [
            Bundle(self._id(number), DEFAULT_PRIORITY, self.due, each.enqueued_at, each.count, each.data)
            for number, each in enumerate(copies, 1)
        ]
        later = self.at + _TEN_YEARS  # also for the retention of the queue
        bundles.append(Bundle(self._id(0), _LAST_PRIORITY, later, later, 1, _MARK))
        if context.store.now() - looked_at > _SAME_ID:
            raise StoreUnavailable(
                f"messages for {self.queue!r} were held up for too long: they are copied again"
            )
        append(context, RELAY, [PlannedBundle.of(self.shard, bundle) for bundle in bundles])

    def unmark(self, context: QueueContext) -> None:
        """Remove the marker of a round that has ended."""
        context.retry(context.store.remove, self.shard, self._id(0), 0)

    def _id(self, number: int) -> bytes:
        return repeatable_bundle_id(self.at, number, self.queue)


class Targets:
    """The queues of the subscriptions of a topic. Each is opened once."""

    def __init__(self, contexts: QueueContexts, topic: str) -> None:
        self._all, self._topic = contexts, topic
        self.contexts: dict[str, QueueContext] = {}
        self._unmarked = 0  # the moment of the last round whose markers are removed

    def copy(self, state: TopicState, round_: Round, envelopes: Sequence[Envelope], *, again: bool) -> None:
        """Store the messages that each subscription gets of a round; ``again``: another relay may have done so."""
        for name, record in state.targets(round_).items():
            since = record.filling.since if record.filling is not None else record.since
            copies = list(copies_of([each for each in envelopes if each.enqueued_at >= since], record.filter))
            target = self._target(name, record, round_.at, round_.due)
            context = self.context(target.queue) if copies else None
            if context is None:
                continue
            try:
                target.store(context, copies, again=again)
            except QueueNotFound:  # it was deleted by hand
                self.contexts.pop(target.queue, None)

    def unmark(self, before: TopicState) -> None:
        """Remove the markers of the round that was the last one in a state."""
        at = before.at
        if at == self._unmarked:
            return
        for name, record in before.subscriptions.items():
            target = self._target(name, record, at)
            if (context := self.context(target.queue)) is not None:
                target.unmark(context)
        self._unmarked = at

    def forget_deleted(self, state: TopicState) -> None:
        """Forget the queues of subscriptions that a state does not have."""
        if len(self.contexts) > len(state.subscriptions):
            queues = {
                queue_of(self._topic, name, each.incarnation) for name, each in state.subscriptions.items()
            }
            self.contexts = {queue: self.contexts[queue] for queue in queues & self.contexts.keys()}

    def context(self, queue: str) -> QueueContext | None:
        """Open a queue once; None when it does not exist."""
        if queue not in self.contexts:
            try:
                self.contexts[queue] = self._all.of(queue)
            except QueueNotFound:
                return None
        return self.contexts[queue]

    def _target(self, name: str, record: SubscriptionRecord, at: int, due: int = 0) -> CopyTarget:
        return CopyTarget(queue_of(self._topic, name, record.incarnation), record.layout, at, due)


def empty(context: QueueContext, before: int, keep: Callable[[], None]) -> None:
    """Remove the messages of rounds before a moment, in any state. ``keep`` is called now and then.

    It names the messages that it removes. So one that stood still meanwhile removes nothing that came later. It ends
    with a read that finds none: consumers may move messages past a read.
    """
    for shard in context.retry(context.store.shards, context.name):
        while _removed(context, shard, before, keep):
            continue


def _removed(context: QueueContext, shard: Shard, before: int, keep: Callable[[], None]) -> int:
    """Remove the messages that a read of a shard finds; returns how many messages."""
    removed = 0
    for piece in slices(context, Peek(shard, _PAGE_MESSAGES, bodies=False)):
        if made_at(piece.bundle.id) >= before:
            continue
        for position in range(piece.first, piece.first + piece.count):
            removed += context.retry(context.store.remove, shard, piece.bundle.id, position)
        keep()
    return removed
