"""Deleting queues that have expired: those with ``expires`` that are empty and were unused for that time.

The first sweep that comes by marks the queue. A client that sends to it or receives from it sees the mark within a
second, and removes it first. A sweep deletes the queue if the mark is old enough, the queue is empty, and its record
has not changed since the sweep read it. So nothing is deleted that is in use, wherever a sweep stops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.core.context.catalogue import note_deleted
from shardq.core.context.queue_context import REFRESH_SECONDS, QueueContext
from shardq.core.context.queue_records import jobs_of, marked, unused_since
from shardq.core.context.retry import Retry
from shardq.core.limits.queue_limits import drop_permits
from shardq.core.logs.log_queues import drop_logs
from shardq.core.receiving.removing import expire
from shardq.core.settings import QueueSettings
from shardq.errors import QueueNotFound
from shardq.storage.requests import QueueRecord, ShardCounts
from shardq.storage.store import Store
from shardq.storage.writing import telling_done

__all__ = ["delete_unused", "drop_belongings", "sweep_beside"]

_log = Log(__name__)

_NOTICE = microseconds(2 * REFRESH_SECONDS)
"""After the mark was set, all clients know of it: one that used the queue before has removed it."""


def _delete_if_unused(context: QueueContext, forget: Callable[[str], None]) -> bool:
    """Delete a queue that has expired, or mark one that may expire; True when it was deleted.

    A queue that may be deleted is forgotten, also when this fails afterwards.

    The live consumers of a queue remove the mark, so a queue that has any is not deleted.
    """
    store, retry, name = context.store, context.retry, context.name
    record = retry(store.load_queue, name)
    expires = None if record is None else QueueSettings.decode(record.settings).expires
    if record is None or expires is None:
        return False
    since, now = unused_since(record), store.now()
    if since is None or now < since:  # or a clock was put right
        retry(store.update_queue, marked(record, now))
        return False
    if now - since < microseconds(expires) + _NOTICE or not is_empty(context):
        return False
    try:
        dropped = retry.ask(store.drop_queue, name, record)
    finally:
        forget(name)
    # An attempt that was not answered may have dropped it.
    with telling_done(lambda: f"queue {name!r} may be deleted" if dropped.after_unknown else ""):
        deleted = dropped.value or (dropped.after_unknown and retry(store.load_queue, name) is None)
    if deleted:
        note_deleted(store, retry, record)
        with telling_done(lambda: f"queue {name!r} is deleted, but maybe not all that belonged to it"):
            for other in drop_belongings(store, retry, record, context.dismiss):
                forget(other)
        _log.info("queue %s is deleted: it was empty and unused for %g seconds", name, expires)
    return deleted


def drop_belongings(
    store: Store, retry: Retry, record: QueueRecord, dismiss: Callable[[str], None]
) -> tuple[str, ...]:
    """Remove what belongs to a queue that is deleted; returns the names of queues that were for its limits."""
    drop_logs(store, retry, record.name)
    permits = drop_permits(store, retry, record.name)
    for job in jobs_of(record):
        dismiss(job)
    return permits


def sweep_beside(context: QueueContext) -> None:
    """Delete what has expired among the queues beside this one: those whose names are alike up to the last ``/``.

    The consumers of all of them do so once a minute. So each does it once in a while, and all together once a minute.
    """
    folder, slash, _ = context.name.rpartition("/")
    names = context.retry(context.store.list_queues, folder + slash) if slash else ()
    if names and random.randrange(len(names)) == 0:
        delete_unused(context.sibling, [name for name in names if name != context.name])


def delete_unused(
    of: Callable[[str], QueueContext], names: Sequence[str], forget: Callable[[str], None] = lambda _: None
) -> tuple[str, ...]:
    """Delete those of the queues that have expired; returns their names. Each is forgotten when it is deleted."""
    deleted: list[str] = []
    with telling_done(lambda: f"deleted so far: {', '.join(deleted)}; repeat the call" if deleted else ""):
        for name in names:
            with suppress(QueueNotFound):  # somebody else has deleted it
                if _delete_if_unused(of(name), forget):
                    deleted.append(name)
    return tuple(deleted)


def is_empty(context: QueueContext) -> bool:
    """Return whether no message is pending or held. Expired messages are dropped."""
    expire(context)
    shards = context.retry(context.store.shards, context.name)
    return not any(_waiting(context.retry(context.store.count, shard)) for shard in shards)


def _waiting(counts: ShardCounts) -> int:
    return counts.ready + counts.delayed + counts.in_flight
