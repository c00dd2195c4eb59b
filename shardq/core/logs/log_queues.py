"""Logs of a queue: queues of shardq's own, whose messages are not received.

A log takes the lines of a quarter of the time for which it is kept, and is dropped as a whole when all of it has
expired. The client that begins a log drops the old ones. Nothing is removed line by line.

The lines about messages of one bundle are stored under one due time, which follows from the bundle's id and lies more
than a century ahead. So they are found by it, whatever else is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

import msgspec

from shardq.base.clock import microseconds, seconds
from shardq.base.receipt import MessageId
from shardq.base.shard import INTERNAL, Shard
from shardq.core.browsing import slices
from shardq.core.context.counters import MutableCounters
from shardq.core.context.queue_context import LiveSettings, Log, QueueContext
from shardq.core.context.retry import Retry
from shardq.core.sending.appending import LOG, append
from shardq.core.sending.planned_bundles import PlannedBundle, grouped_by_shard
from shardq.core.settings import QueueSettings
from shardq.errors import QueueNotFound
from shardq.storage.bundles import BundleData, decode_bundle, encode_bundle, made_at
from shardq.storage.requests import Peek, QueueRecord
from shardq.storage.store import Store

__all__ = ["EVENTS", "RESULTS", "Line", "LogKind", "drop_logs", "drop_old_logs", "logs_of", "read", "write"]

_SHORTEST_PERIOD = 900  # seconds
_PERIODS = 4  # of the time for which a log is kept
_SHARDS = 4  # of a log, where a store has several requests under way
_FAR = 2**52  # microseconds, 142 years
_LINES = 100  # in one message of a log
_LARGE = 2**18  # bytes of the lines in one
_PAGE = 1_000
_MOST_KNOWN = 4_096  # logs that a client writes to
_LONGEST_NAME = 60
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class LogKind(msgspec.Struct, frozen=True):
    """A kind of log: the prefix of its names, and the seconds for which a queue keeps it; None: not at all."""

    folder: str
    kept: Callable[[QueueSettings], float | None]


EVENTS = LogKind(f"{INTERNAL}events/", lambda settings: settings.events)
RESULTS = LogKind(
    f"{INTERNAL}results/", lambda settings: settings.history_retention if settings.keep_results else None
)


class Line(msgspec.Struct, frozen=True):
    """Something about messages, to be found by each of the ids."""

    ids: Sequence[MessageId]
    data: bytes


def write(kind: LogKind, context: QueueContext, lines: Sequence[Line]) -> bool:
    """Store lines in the present log of a queue; False when the queue is gone, or keeps no such log by now."""
    log = context.logs.get((kind.folder, context.name))
    if log is not None and context.store.now() < log.until:
        with suppress(QueueNotFound):  # it was dropped with its queue, which may be there again
            _append(log.context, lines)
            return True
    log = _begin(kind, context)
    if log is None:
        return False
    if len(context.logs) >= _MOST_KNOWN:  # others may have deleted their queues
        context.logs.clear()
    context.logs[kind.folder, context.name] = log
    _append(log.context, lines)
    return True


def read(context: QueueContext, log: str, identity: MessageId) -> Iterator[bytes]:
    """Read the lines about messages of a bundle in a log, in no order."""
    due = _due(identity.bundle_id)
    with suppress(QueueNotFound):  # it was dropped at this moment
        for piece in slices(
            context, Peek(_shard_of(context.store, log, identity), _PAGE, since=due, until=due + 1)
        ):
            for body in decode_bundle(piece.bundle.data).bodies:
                yield from _decode(body)


def logs_of(store: Store, retry: Retry, kind: LogKind, queue: str) -> list[tuple[int, str]]:
    """List the logs of a queue, with the end of each log's time, the oldest first."""
    folder = _folder(kind, queue)
    ends = (name.removeprefix(folder) for name in retry(store.list_queues, folder))
    # Those of another queue may have names that begin so.
    return sorted((microseconds(int(end)), folder + end) for end in ends if end.isdigit())


def drop_logs(store: Store, retry: Retry, queue: str) -> None:
    """Drop the logs that a queue does not keep: all of one that is gone. Each is dropped as it was found.

    One that a queue which is created again begins between that look and the drop may be lost.
    """
    found = [
        (kind, record)
        for kind in (EVENTS, RESULTS)
        for _, name in logs_of(store, retry, kind, queue)
        if (record := retry(store.load_queue, name)) is not None
    ]
    present = retry(store.load_queue, queue) if found else None  # it is looked for after they were read
    for kind, record in found:
        if present is None or kind.kept(QueueSettings.decode(present.settings, queue)) is None:
            retry(store.drop_queue, record.name, record)


def drop_old_logs(context: QueueContext) -> int:
    """Drop those that were kept for long enough; returns how many."""
    kinds = [(kind, kept) for kind in (EVENTS, RESULTS) if (kept := kind.kept(context.settings)) is not None]
    return sum(_drop_old(context, kind, kept) for kind, kept in kinds)


def _drop_old(context: QueueContext, kind: LogKind, kept: float) -> int:
    over = context.store.now() - microseconds(kept)
    logs = logs_of(context.store, context.retry, kind, context.name)
    return sum(context.retry(context.store.drop_queue, name) for until, name in logs if until <= over)


def _begin(kind: LogKind, context: QueueContext) -> Log | None:
    """Open the present log of a queue; it is created if it is missing."""
    try:
        kept = kind.kept(context.live.refresh())
    except QueueNotFound:
        return None
    if kept is None:
        return None
    period = max(int(kept) // _PERIODS, _SHORTEST_PERIOD)
    until = (int(seconds(context.store.now())) // period + 1) * period
    store, retry, name = context.store, context.retry, f"{_folder(kind, context.name)}{until}"
    plain = QueueSettings(shards=_shards(store), time_shards=1, max_deliveries=None)
    record = QueueRecord.new(name, plain.encode())
    if retry(store.create_queue, record):
        retry(store.create_shards, plain.layout.all_shards(name))
        if not _is_there(context):  # who deleted it meanwhile may not have seen the log
            retry(store.drop_queue, name, record)
            return None
        _drop_old(context, kind, kept)
    live = LiveSettings(store, retry, name, timer=lambda: 0.0)  # they never change
    log = msgspec.structs.replace(context, name=name, live=live, counters=MutableCounters(), hooks=None)
    return Log(log, microseconds(until))


def _is_there(context: QueueContext) -> bool:
    try:
        context.live.refresh()
    except QueueNotFound:
        return False
    return True


def _append(log: QueueContext, lines: Iterable[Line]) -> None:
    by_place: dict[tuple[Shard, int], list[bytes]] = {}
    for line in lines:
        places = {(_shard_of(log.store, log.name, each), _due(each.bundle_id)) for each in line.ids}
        for place in places:
            by_place.setdefault(place, []).append(line.data)
    bundles = [
        _bundle(log, shard, due, part) for (shard, due), some in by_place.items() for part in _parts(some)
    ]
    for group in grouped_by_shard(bundles):
        append(log, LOG, group)


def _parts(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in parts of some each, not too large together."""
    part: list[bytes] = []
    for line in lines:
        if part and (len(part) == _LINES or sum(map(len, part)) + len(line) > _LARGE):
            yield part
            part = []
        part.append(line)
    yield part


def _bundle(log: QueueContext, shard: Shard, due: int, lines: list[bytes]) -> PlannedBundle:
    now = log.store.now()
    data = encode_bundle(BundleData([_encode(lines)]))
    return PlannedBundle(
        log.ids.new(now), priority=0, due=due, enqueued_at=now, count=1, data=data, shard=shard
    )


def _folder(kind: LogKind, queue: str) -> str:
    """Return the common beginning of the names of a queue's logs. Not every store takes a name that is much longer."""
    if len(queue) > _LONGEST_NAME:
        queue = f"{queue[:40]}-{blake2b(queue.encode(), digest_size=8).hexdigest()}"
    return f"{kind.folder}{queue}/"


def _shard_of(store: Store, log: str, identity: MessageId) -> Shard:
    """Return the shard of the lines about a message: those about messages of one shard are together."""
    return Shard(log, 0, identity.shard.number % _shards(store))


def _shards(store: Store) -> int:
    return 1 if store.capabilities.requests_at_once == 1 else _SHARDS


def _due(bundle_id: bytes) -> int:
    return made_at(bundle_id) + _FAR
