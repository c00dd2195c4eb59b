"""Creating, altering and deleting queues, with the queues and keys that belong to them.

Queues that have expired are deleted too: those with ``expires`` that are empty and were unused for that time. The first
sweep marks the queue. A client that sends to it or receives from it sees the mark within a second, and removes it
first. A sweep deletes the queue if the mark is old enough, the queue is empty, and its record has not changed since the
sweep read it. So nothing is deleted that is in use, wherever a sweep stops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.base.shard import check_queue_name
from shardq.core.context.catalogue import note_change, note_deleted
from shardq.core.context.queue_context import (
    REFRESH_SECONDS,
    QueueContext,
    QueueContexts,
    is_same_queue,
    nothing_in_a_new_store,
)
from shardq.core.context.queue_records import jobs_of, marked, unused_since
from shardq.core.context.retry import Retry
from shardq.core.limits.queue_limits import check_limits, drop_permits
from shardq.core.logs.log_queues import drop_logs
from shardq.core.receiving.removing import expire
from shardq.core.settings import QueueSettings, QueueSettingsArguments, check_store, warn_of_differences
from shardq.core.settling.dead_letters import (
    REFUSED,
    check_dead_letter_chain,
    check_dead_letter_queue,
    create_dead_letter_queue,
    drop_dead_letter_queue,
)
from shardq.errors import QueueExists, QueueNotFound, UnreadableSettings
from shardq.storage.requests import QueueRecord, ShardCounts
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

__all__ = ["alter_queue", "create_queue", "delete_queue", "delete_unused", "drop_belongings", "sweep_beside"]

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
    expires = None if record is None else QueueSettings.decode(record.settings, name).expires
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
    with reporting_done(lambda: f"queue {name!r} may be deleted" if dropped.after_unknown else ""):
        deleted = dropped.value or (dropped.after_unknown and retry(store.load_queue, name) is None)
    if deleted:
        note_deleted(store, retry, record)
        with reporting_done(lambda: f"queue {name!r} is deleted, but maybe not all that belonged to it"):
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
    """Delete those of the queues that have expired; returns their names. Each is forgotten when it is deleted.

    Settings that cannot be read keep no other queue from being deleted: they are raised at the end.
    """
    deleted: list[str] = []
    unreadable: UnreadableSettings | None = None
    with reporting_done(lambda: f"deleted so far: {', '.join(deleted)}; repeat the call" if deleted else ""):
        for name in names:
            try:
                if _delete_if_unused(of(name), forget):
                    deleted.append(name)
            except QueueNotFound:  # somebody else has deleted it
                continue
            except UnreadableSettings as error:
                unreadable = unreadable or error
        if unreadable is not None:
            raise unreadable
    return tuple(deleted)


def is_empty(context: QueueContext) -> bool:
    """Return whether no message is pending or held. Expired messages are dropped."""
    expire(context)
    shards = context.retry(context.store.shards, context.name)
    return not any(_waiting(context.retry(context.store.count, shard)) for shard in shards)


def _waiting(counts: ShardCounts) -> int:
    return counts.ready + counts.delayed + counts.in_flight


def create_queue(
    contexts: QueueContexts, name: str, given: QueueSettingsArguments, *, exist_ok: bool
) -> QueueContext:
    """Create a queue and its dead-letter queue; one that exists is used. See :meth:`shardq.Client.create_queue`.

    Nothing is left of a new queue that the store refuses, or whose dead-letter queue it refuses.
    """
    store, retry, name = contexts.store, contexts.retry, check_queue_name(name)
    chosen = _checked(contexts, name, given)
    record = QueueRecord.new(name, chosen.encode())
    if chosen.is_limited and contexts.outside is None:
        drop_permits(store, retry, name)  # of an earlier queue whose deletion has not reached them
    created = retry.ask(store.create_queue, record)
    stored = f"queue {name!r} {'is' if created.value else 'may be'} created: call it again with exist_ok=True"
    with reporting_done(lambda: stored if created.value or created.after_unknown else ""):
        unanswered = created.after_unknown and retry(store.load_queue, name) == record
        if not created.value and not unanswered and not exist_ok:
            raise QueueExists(
                f"queue {name!r} exists already: open it, accept it with exist_ok=True, or change it with "
                f"`shardq alter {name}`"
            )
        contexts.forget(name)
        try:
            if created.value or unanswered:
                check_dead_letter_chain(store, retry, name, chosen)
                retry(store.create_shards, chosen.layout.all_shards(name))
            context = contexts.of(name)
            live = context.live
            live.use()
            kept = msgspec.structs.asdict(live.known)
            warn_of_differences(f"queue {name!r}", kept, given, "`alter` changes it")
            if live.known.has_dead_letters:
                create_dead_letter_queue(store, retry, name, live.known)
        except REFUSED:
            if created.value or unanswered:
                retry(store.drop_queue, name, record)
                contexts.forget(name)
            raise
    if (created.value or unanswered) and contexts.outside is None:
        note_change(store, retry, name, dead_letters=chosen.dead_letter_queue is not None)
    return context


def alter_queue(context: QueueContext, changes: QueueSettingsArguments) -> QueueSettings:
    """Change settings of a queue, and what belongs to it. See :meth:`shardq.Queue.alter`."""
    store, retry, name = context.store, context.retry, context.name
    wanted = context.settings.change(changes)
    check_dead_letter_queue(name, wanted)
    check_limits(name, wanted)
    check_store(wanted, store.capabilities)
    check_dead_letter_chain(store, retry, name, wanted)
    created = wanted.has_dead_letters and create_dead_letter_queue(store, retry, name, wanted)
    try:
        with reporting_done(lambda: "its dead-letter queue is created: repeat the call" if created else ""):
            settings = context.live.alter(changes)
    except REFUSED:
        if created:
            drop_dead_letter_queue(store, retry, name, wanted)
        raise
    with reporting_done(lambda: "the settings are changed: repeat the call"):
        drop_logs(store, retry, name)
    if "dead_letter_queue" in changes and context.outside is None:
        note_change(store, retry, name, dead_letters=True)
    return settings


def delete_queue(contexts: QueueContexts, name: str) -> None:
    """Remove a queue and what belongs to it. See :meth:`shardq.Client.delete_queue`."""
    store, retry, name = contexts.store, contexts.retry, check_queue_name(name)
    with nothing_in_a_new_store(name):
        seen = retry(store.load_queue, name)
    # Also what is left of a queue that is gone: the call that deleted it may have ended half way.
    try:
        seen, deleted = _drop(store, retry, seen or QueueRecord(name, b"", 0))
    finally:  # it may be deleted, whatever was answered
        contexts.forget(name)
    if deleted and contexts.outside is None:
        note_deleted(store, retry, seen)
    rest = f"queue {name!r} is deleted, but not all that belonged to it: repeat the call"
    with reporting_done(lambda: rest if deleted else ""):
        for other in drop_belongings(store, retry, seen, contexts.dismiss):
            contexts.forget(other)
    if not deleted:
        raise QueueNotFound(f"queue {name!r} does not exist: `shardq list` shows those that do")


def _drop(store: Store, retry: Retry, seen: QueueRecord) -> tuple[QueueRecord, bool]:
    """Drop a queue that was seen; returns the record that it had last, and False if there was none.

    An attempt that was not answered may have dropped it. Then a queue that was created again stays.
    """
    unknown = False
    with reporting_done(lambda: f"queue {seen.name!r} may be deleted: repeat the call" if unknown else ""):
        while True:
            dropped = retry.ask(store.drop_queue, seen.name, seen)
            unknown = unknown or dropped.after_unknown
            present = None if dropped.value else retry(store.load_queue, seen.name)
            if present is None or (unknown and not is_same_queue(present, seen)):
                return seen, dropped.value or unknown
            seen = present  # it was altered meanwhile


def _checked(contexts: QueueContexts, name: str, given: QueueSettingsArguments) -> QueueSettings:
    chosen = QueueSettings().change(given)
    check_dead_letter_queue(name, chosen)
    check_limits(name, chosen)
    check_store(chosen, contexts.store.capabilities)
    return chosen
