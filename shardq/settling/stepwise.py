"""Moving messages between shards of a store that cannot ack in one and append to another in one step.

Each message becomes a bundle of its own. Its id, and with it its shard and its due time, are what the first attempt
entered for it in the ledger of the target queue, so that every later attempt stores the same bundle again, however the
messages were claimed then. The copy carries the key of that entry and is handed out only when it is confirmed (see
:mod:`shardq.receiving.confirming`). So whoever moves a message again finds the key confirmed, and has only to ack it,
or finds it unconfirmed: then nobody was handed the copy, and storing it once more changes nothing where it is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import msgspec

from shardq.clock import microseconds
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer
from shardq.errors import OutcomeUnknown, RepeatTooLate, StoreUnavailable
from shardq.held import Pick
from shardq.receipt import MessageId
from shardq.sending.appending import append
from shardq.settling.picks import spans_of
from shardq.sharding.shard import Shard
from shardq.storage.bundle_data import BundleData, encode_bundle
from shardq.storage.bundle_id import bundle_ids_until, made_at
from shardq.storage.requests import Acknowledge, Append, Bundle, DedupeEntry, Extend, Fenced

__all__ = ["Part", "move_step_by_step"]

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_MEMORY = 7 * 86_400_000_000
"""For how long, in microseconds, a move that was interrupted is recognised when it is made again."""

_PREFIX = "shardq-move:"


class Part(msgspec.Struct, frozen=True):
    """What is picked of one held slice, and its messages as they are to be in the target."""

    pick: Pick
    messages: BundleData


class _Copy(msgspec.Struct, frozen=True):
    """One message as it is to be in the target, and under which entry of the ledger."""

    entry: DedupeEntry
    priority: int
    enqueued_at: int
    data: BundleData

    @property
    def place(self) -> MessageId:
        return MessageId.parse(self.entry.message_id)

    @property
    def bundle(self) -> Bundle:
        identity = self.place.bundle_id
        data = encode_bundle(msgspec.structs.replace(self.data, move_key=self.entry.key))
        return Bundle(identity, self.priority, made_at(identity), self.enqueued_at, 1, data)


def move_step_by_step(
    source: QueueContext, target: QueueContext, shard: Shard, parts: Sequence[Part], *, keep: bool
) -> Answer[Fenced]:
    """Hold the messages on, store them in the target, ack them; nothing where something of them is lost.

    Raises OutcomeUnknown only where the ack is in doubt; StoreUnavailable where they are still in the source.
    """
    spans = spans_of([part.pick for part in parts])
    lease = microseconds(source.settings.visibility_timeout)
    fenced = _before_the_ack(source.retry, source.store.extend, Extend(shard, spans, lease, shorten=False))
    if fenced != Fenced():
        return Answer(fenced, after_unknown=False)
    _before_the_ack(_store, target, parts)
    request = Acknowledge(shard, spans, keep, moved=True)
    answer = source.retry.ask(source.store.acknowledge, request)
    if answer.value.lost and not answer.after_unknown:
        _log.warning(
            "messages of shard %s were moved after their lease was over: they are delivered here too", shard
        )
    return Answer(Fenced(), after_unknown=False)


def _before_the_ack(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """A step after which the messages are still in the source, whatever became of it; so it can be made again."""
    try:
        return step(*args, **kwargs)
    except (OutcomeUnknown, RepeatTooLate) as error:
        raise StoreUnavailable(f"messages were not moved, and are still where they were: {error}") from error


def _store(target: QueueContext, parts: Sequence[Part]) -> None:
    """Store copies of the messages, each once, whoever else does so; returns when all their keys are confirmed."""
    read_at = target.store.now()
    copies = _reserved(target, parts, read_at)
    by_shard: dict[Shard, list[Bundle]] = {}
    for copy in copies:
        by_shard.setdefault(copy.place.shard, []).append(copy.bundle)
    for shard, bundles in by_shard.items():
        ids = {bundle.id for bundle in bundles}
        append(target, Append(shard, tuple(bundles)), keyed=ids, keys_read_at=read_at)
    if copies:
        target.retry(target.store.confirm_keys, target.name, [copy.entry for copy in copies])


def _reserved(target: QueueContext, parts: Sequence[Part], now: int) -> list[_Copy]:
    """The messages that nobody is known to have stored, each under the id that its first attempt chose."""
    count = sum(len(part.messages.bodies) for part in parts)
    ids = iter(bundle_ids_until(now, count))
    shard = target.placement.choose(target.settings.layout, now, count)
    offered = [
        _Copy(
            DedupeEntry(_key(part.pick, position), str(MessageId(shard, next(ids), 0))),
            part.pick.held.bundle.priority,
            part.pick.held.bundle.enqueued_at,
            part.messages.slice(number, 1),
        )
        for part in parts
        for number, position in enumerate(part.pick.positions)
    ]
    entries = [copy.entry for copy in offered]
    standing = target.retry(target.store.reserve_keys, target.name, entries, _MEMORY)
    return [
        msgspec.structs.replace(copy, entry=entry)
        for copy, entry in zip(offered, standing, strict=True)
        if not entry.confirmed
    ]


def _key(pick: Pick, position: int) -> str:
    return f"{_PREFIX}{pick.held.message_id(position)}"
