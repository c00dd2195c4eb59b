"""The logs of a queue's events: queues of shardq's own, whose messages nobody receives.

A log takes the events of a quarter of the time for which they are kept, and is dropped as a whole when all of them are
over. Whoever begins a log does that. Nothing is removed event by event.

The entries about messages of one bundle stand under one due time, which follows from the bundle's id and lies more than
a century ahead. So they are found by it, whatever else is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

import msgspec

from shardq.browsing import slices
from shardq.clock import microseconds, seconds
from shardq.context.events import Entry
from shardq.context.queue_context import Counters, LiveSettings, QueueContext
from shardq.context.retry import Retry
from shardq.errors import QueueNotFound
from shardq.receipt import MessageId
from shardq.sending.doors import EVENTS, append
from shardq.sending.planned_bundles import PlannedBundle, grouped_by_shard
from shardq.settings import QueueSettings
from shardq.sharding.shard import INTERNAL, Shard
from shardq.storage.bundle_data import BundleData, decode_bundle, encode_bundle
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Bundle, Peek, QueueRecord
from shardq.storage.store import Store

__all__ = ["EventLogs", "drop_logs", "drop_old_logs", "read_entries"]

_SHORTEST_PERIOD = 900  # seconds
_PERIODS = 4  # of the time for which events are kept
_SHARDS = 4  # of a log, where a store has several requests under way
_FAR = 2**52  # microseconds, 142 years
_ENTRIES = 100  # in one message of a log
_PAGE = 1_000
_LONGEST_NAME = 60
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entry]).decode


class _Log(msgspec.Struct, frozen=True):
    context: QueueContext
    until: int  # microseconds: later events go into the next one


class EventLogs:
    """Writes entries into the logs of a client's queues."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}  # the present ones, by queue

    def write(self, context: QueueContext, entries: Sequence[Entry]) -> None:
        """Store entries in the present log of a queue. Those of a queue that is gone, or keeps none by now, are not."""
        log = self._logs.get(context.name)
        if log is not None and context.store.now() < log.until:
            try:
                _append(log.context, entries)
            except QueueNotFound:  # it was dropped with its queue, which may be there again
                pass
            else:
                return
        if (log := _begin(context)) is not None:
            self._logs[context.name] = log
            _append(log.context, entries)


def read_entries(context: QueueContext, queue: str, identity: MessageId) -> Iterator[Entry]:
    """The entries about the messages of a bundle in the logs of a queue, in no order."""
    due = _due(identity.bundle_id)
    for name, _ in _logs_of(context.store, context.retry, queue):
        shard = _shard_of(context.store, name, identity)
        with suppress(QueueNotFound):  # it was dropped at this moment
            for piece in slices(context, Peek(shard, _PAGE, since=due, until=due + 1)):
                for body in decode_bundle(piece.bundle.data).bodies:
                    yield from _decode(body)


def drop_logs(store: Store, retry: Retry, queue: str) -> None:
    """Drop all logs of a queue that is gone, or keeps no events any more."""
    for name, _ in _logs_of(store, retry, queue):
        retry(store.drop_queue, name)


def drop_old_logs(context: QueueContext) -> int:
    """Drop those whose events were kept for long enough; returns how many."""
    kept = context.settings.events or 0.0
    over = context.store.now() - microseconds(kept)
    old = [name for name, until in _logs_of(context.store, context.retry, context.name) if until <= over]
    return sum(context.retry(context.store.drop_queue, name) for name in old)


def _begin(context: QueueContext) -> _Log | None:
    """The present log of a queue, made if it is missing."""
    try:
        kept = context.live.refresh().events
    except QueueNotFound:
        return None
    if kept is None:
        return None
    period = max(int(kept) // _PERIODS, _SHORTEST_PERIOD)
    until = (int(seconds(context.store.now())) // period + 1) * period
    store, retry, name = context.store, context.retry, f"{_folder(context.name)}{until}"
    plain = QueueSettings(shards=_shards(store), time_shards=1, max_deliveries=None)
    if retry(store.create_queue, QueueRecord.new(name, plain.encode())):
        retry(store.prepare, plain.layout.all_shards(name))
        drop_old_logs(context)
    live = LiveSettings(store, retry, name, timer=lambda: 0.0)  # they never change
    log = msgspec.structs.replace(context, name=name, live=live, counters=Counters(), hooks=None)
    return _Log(log, microseconds(until))


def _append(log: QueueContext, entries: Iterable[Entry]) -> None:
    by_place: dict[tuple[Shard, int], list[Entry]] = {}
    for entry in entries:
        for identity in {text: MessageId.parse(text) for text in (entry.first, entry.to) if text}.values():
            place = _shard_of(log.store, log.name, identity), _due(identity.bundle_id)
            by_place.setdefault(place, []).append(entry)
    bundles = [
        _bundle(log, shard, due, some[start : start + _ENTRIES])
        for (shard, due), some in by_place.items()
        for start in range(0, len(some), _ENTRIES)
    ]
    for group in grouped_by_shard(bundles):
        append(log, EVENTS, group)


def _bundle(log: QueueContext, shard: Shard, due: int, entries: list[Entry]) -> PlannedBundle:
    now = log.store.now()
    data = encode_bundle(BundleData([_encode(entries)]))
    bundle = Bundle(log.ids.new(now), priority=0, due=due, enqueued_at=now, count=1, data=data)
    return PlannedBundle(shard, bundle)


def _logs_of(store: Store, retry: Retry, queue: str) -> list[tuple[str, int]]:
    """The logs of a queue, and until when their events are. Those of other queues may have names that begin so."""
    folder = _folder(queue)
    names = retry(store.list_queues, folder)
    return [
        (name, microseconds(int(name.removeprefix(folder))))
        for name in names
        if name.removeprefix(folder).isdigit()
    ]


def _folder(queue: str) -> str:
    """What the names of a queue's logs begin with. Not every store takes a name that is much longer."""
    if len(queue) > _LONGEST_NAME:
        queue = f"{queue[:40]}-{blake2b(queue.encode(), digest_size=8).hexdigest()}"
    return f"{INTERNAL}events/{queue}/"


def _shard_of(store: Store, log: str, identity: MessageId) -> Shard:
    """Where the entries about a message are: those about messages of one shard are together."""
    return Shard(log, 0, identity.shard.number % _shards(store))


def _shards(store: Store) -> int:
    return 1 if store.capabilities.requests_at_once == 1 else _SHARDS


def _due(bundle_id: bytes) -> int:
    return made_at(bundle_id) + _FAR
