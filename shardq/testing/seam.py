"""The one place where tests reach behind the public API: to caches, timers, background threads and claims.

A test of behaviour uses the public API and these functions, and no private name. When the package is restructured, this
module is adapted and the tests stay. It is for the tests of shardq itself, and changes without notice.
"""

# ruff: noqa: SLF001 - the seam knows the private names, so that the tests need not

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Thread
from typing import Any

from shardq.aio.threads import Wraps
from shardq.base.clock import microseconds
from shardq.base.waits import BackgroundThread
from shardq.client import Client
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.producer import Producer
from shardq.client.queue import Queue
from shardq.client.semaphore import Permit
from shardq.core.context.group_commit import GroupCommit
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.held import HeldSlice
from shardq.core.message import Message
from shardq.core.receiving.prefetcher import Prefetcher
from shardq.storage.store import Store

__all__ = [
    "abandon",
    "claim_round",
    "claim_thread",
    "claims_of",
    "context_of",
    "contexts_of",
    "drive_timers",
    "engine_of",
    "expire_caches",
    "extend_leases",
    "fetch",
    "fetch_by_hand",
    "flush_events",
    "has_slept",
    "joined_callers",
    "keep_lease",
    "seconds_until_due",
    "seconds_until_poll",
    "settle_through",
    "store_of",
    "sync_of",
]

Opened = Client | Queue | Producer | Consumer

FLUSH_SECONDS = 5.0


# -- contexts, stores and caches --------------------------------------------------------------------------------


def contexts_of(opened: Opened) -> dict[str, QueueContext]:
    """Return the queues that it uses, by name: of a client, those that it remembers now."""
    if isinstance(opened, Client):
        return dict(opened._contexts._known)
    if isinstance(opened, Consumer):
        return {name: claims.context for name, claims in opened._receiving.queues.items()}
    return {opened._context.name: opened._context}


def engine_of(client: Client) -> QueueContexts:
    """Return the queues of a client, for functions that take them all."""
    return client._contexts


def context_of(opened: Queue | Producer | Consumer) -> QueueContext:
    """Return its queue for functions that take one: of a consumer of several, the first."""
    return opened._context


def store_of(opened: Opened) -> Store:
    """Return the store that it sends requests to, to ask it directly or to replace a method.

    Of a client it is the store itself. Of the others it is the store in front of the one that joins the requests of
    several threads. All queues, producers and consumers of a client share it.
    """
    return opened._store if isinstance(opened, Client) else opened._context.store


def sync_of(opened: Wraps[Any]) -> Any:
    """Return the object of the sync client that one of the asyncio client stands for."""
    return opened._sync


def expire_caches(*opened: Opened) -> None:
    """Have settings read and pending messages counted again by the next call that needs them.

    As after ten seconds; a deleted queue is noticed then, too.
    """
    for context in _all_contexts(opened):
        context.live.accept(None)
        context.usage.forget()


def drive_timers(*opened: Opened, timer: Callable[[], float]) -> None:
    """Let a timer of the test, instead of time.monotonic, decide when caches are old and pauses have ended.

    It drives settings, counts of pending messages, pauses after failures, the intervals of reads of all queues,
    messages claimed ahead, and sweeps. It does not drive how long a call waits. Such as a
    :class:`~shardq.testing.ManualTimer`: one behind time.monotonic() keeps the present caches.
    """
    for context in _all_contexts(opened):
        context.live.timer = context.usage.timer = timer
    for each in opened:
        if isinstance(each, Consumer):
            receiving = each._receiving
            receiving.timer = receiving._probing.timer = timer
            receiving._failed.timer = receiving._sweeping.timer = timer
            for queue in receiving.queues.values():
                queue.upkeep.timer = timer
            if each._prefetcher is not None:
                each._prefetcher.timer = timer


def flush_events(opened: Queue | Producer | Consumer) -> None:
    """Wait until the events of its client are written."""
    opened._context.events.flush(FLUSH_SECONDS)


def joined_callers(opened: Client | Producer) -> int:
    """Count the threads that wait until another one has sent (a producer) or settled (a client) for them."""
    group_commit: GroupCommit[Any, Any] = (
        opened._contexts.settle_commit.group_commit if isinstance(opened, Client) else opened._group_commit
    )
    return group_commit.waiting()


def _all_contexts(opened: Collection[Opened]) -> list[QueueContext]:
    return [context for each in opened for context in contexts_of(each).values()]


# -- receiving --------------------------------------------------------------------------------------------------


def claim_round(
    consumer: Consumer, limit: int = 1, *, news: Collection[str] | None = None, thorough: bool = False
) -> Batch:
    """Let a consumer without prefetch try once to claim messages, as a waiting ``receive`` does again and again.

    ``news`` are the queues that a signal has named: the others are read only if something is due there. The batch may
    be empty although messages are due, unless the round is thorough.
    """
    return consumer._batch(consumer._receiving.fill(limit, thorough=thorough, news=news))


def seconds_until_poll(consumer: Consumer) -> float:
    """Return the seconds after which a waiting consumer tries to claim again if no signal comes."""
    return consumer._idling.longest()


def has_slept(consumer: Consumer) -> bool:
    """Return True when the consumer sleeps, or has slept and found nothing since."""
    return consumer._idling.has_slept


def seconds_until_due(consumer: Consumer) -> float | None:
    """Return the seconds until the next message is due that the consumer knows of; None when it knows of none."""
    return consumer._receiving.seconds_until_due()


def claims_of(held: Batch | Message | Permit) -> list[HeldSlice]:
    """Return the claims behind messages: a slice of one shard each, with its lease and its token."""
    if isinstance(held, Batch):
        return [selection.held for selection in held._selections]
    return [held._held]


def settle_through(batch: Batch, queue: Queue) -> None:
    """Let a batch be settled by the client of another view of its queue, such as one whose store fails."""
    engine: Any = batch._settler
    engine._context = queue._context


def keep_lease(held: Batch | Message, seconds: float) -> None:
    """Extend leases as the thread of ``keep_leases`` does: a lost one is noted, and not raised."""
    engine: Any = held._settler
    selections = held._open if isinstance(held, Batch) else [held._selection]
    engine.keep(selections, microseconds(seconds))


def claim_thread(consumer: Consumer) -> Thread | None:
    """Return the last thread that claimed messages while a batch was acked; None when there was none."""
    last = consumer._overlap._last
    return None if last is None else last.thread.thread


def extend_leases(consumer: Consumer) -> None:
    """Extend the leases that the consumer keeps, now: those of ``keep_leases`` and of messages claimed ahead."""
    prefetcher = consumer._prefetcher
    for keepers in (consumer._keepers, None if prefetcher is None else prefetcher._keepers):
        for keeper in [] if keepers is None else list(keepers._keepers.values()):
            keeper.extend()


# -- claiming ahead ---------------------------------------------------------------------------------------------


def fetch_by_hand(consumer: Consumer) -> None:
    """End the thread that claims ahead; :func:`fetch` does its work from now on. Needs ``prefetch``."""
    prefetcher = _prefetcher(consumer)
    with prefetcher._lock:
        prefetcher._stopped = True
        prefetcher._changes.notify_all()
    prefetcher._thread.join()
    prefetcher._thread = _NoThread("by hand")
    prefetcher._stopped = False


class _NoThread(BackgroundThread):
    def prepare(self, work: Callable[[], None]) -> None:
        """Begin nothing."""


def fetch(consumer: Consumer, times: int = 1) -> None:
    """Do what the thread that claims ahead does in one turn: return what has waited too long, and claim."""
    for _ in range(times):
        _prefetcher(consumer).fetch()


def abandon(consumer: Consumer) -> None:
    """End a consumer as if its process had ended: nothing that it holds or has claimed ahead is returned."""
    if consumer._prefetcher is not None:
        for ahead in consumer._prefetcher._queues.values():
            setattr(ahead, "return_uncounted", _keep_claimed)  # noqa: B010
    consumer.close()


def _keep_claimed(_: object) -> None:
    """Replace the function that returns messages."""


def _prefetcher(consumer: Consumer) -> Prefetcher:
    assert consumer._prefetcher is not None, "the consumer claims nothing ahead: open it with prefetch"
    return consumer._prefetcher
