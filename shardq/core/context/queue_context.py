"""One queue of one client, as its parts see it: the store, live settings, retries, counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import msgspec

from shardq.base.shard import INTERNAL, check_queue_name, may_begin_a_name
from shardq.base.texts import kind_of, shown
from shardq.core.context.counters import ClientCounters, MutableCounters
from shardq.core.context.event_writer import EventWriter, Write
from shardq.core.context.queue_records import jobs_of, unused_since, with_jobs
from shardq.core.context.queue_usage import QueueUsage
from shardq.core.context.retry import Retry
from shardq.core.context.settle_group_commit import SettleGroupCommit
from shardq.core.hooks import Hooks, Observer
from shardq.core.settings import QueueSettings, check_number, check_store
from shardq.core.sharding.placement import LaneRoundRobin, Placement
from shardq.errors import InvalidSetting, QueueNotFound, SchemaMismatch
from shardq.storage.bundles import BundleIds
from shardq.storage.per_process import OwnLock, PerProcess
from shardq.storage.requests import QueueRecord
from shardq.storage.store import Store

__all__ = [
    "REFRESH_SECONDS",
    "LiveSettings",
    "Log",
    "QueueContext",
    "QueueContexts",
    "is_same_queue",
    "nothing_in_a_new_store",
]

REFRESH_SECONDS = 1.0

_MOST = 4096  # queues that a client remembers: others may have deleted them
_MOST_CHANGES = 1000
"""Of one record between two reads of it. First versions are random: that of a queue which is created again comes so
close behind the last one once in a million times."""


class LiveSettings:
    """One queue's settings, read again from the store when they are a second old. One client shares them."""

    def __init__(
        self, store: Store, retry: Retry, name: str, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._retry, self._name, self.timer = store, retry, name, timer
        self.created_again = 0
        """How often the queue was deleted and created again, as far as is known."""
        self._record, settings = self._load()
        self._take(self._record, settings)
        self._mark_read(timer())

    def current(self, at_most: float | None = None) -> QueueSettings:
        """Return the settings; read them again when they are older than ``at_most`` seconds (None: one).

        Raises QueueNotFound.
        """
        until = self.read_again_at if at_most is None else self.read_again_at - REFRESH_SECONDS + at_most
        if self.timer() > until:
            self.refresh()
        return self.known

    def accept(self, record: QueueRecord | None) -> None:
        """Take over a record of the queue that was just read; None has it read again, which reports a missing queue."""
        if record is None:
            self._mark_read(-float("inf"))
        else:
            self._take(record, QueueSettings.decode(record.settings, record.name))
            self._mark_read(self.timer())

    def refresh(self) -> QueueSettings:
        """Read the settings from the store. Raises QueueNotFound."""
        return self._refreshed()[1]

    def use(self) -> None:
        """Note that the queue is used, if it expires and was found unused: its record is stored anew."""
        while self.known.expires is not None and unused_since(self._record) is not None:
            self.alter({})
            self.refresh()

    def alter(self, changes: Mapping[str, Any]) -> QueueSettings:
        """Store changed settings; another client's change at the same moment is kept too."""
        while True:
            seen, known = self._refreshed()
            settings = known.change(changes)
            check_store(settings, self._store.capabilities)
            if settings.layout != known.layout:
                self._retry(self._store.create_shards, settings.layout.all_shards(self._name))
            encoded = with_jobs(settings.encode(), jobs_of(seen))
            record = QueueRecord(self._name, encoded, seen.version + 1)
            if self._retry.verified(partial(self._are, settings), self._store.update_queue, record):
                self._made(record, settings)
                return settings

    @property
    def version(self) -> int:
        """The version of the record as it was read last."""
        return self._record.version

    def assign(self, job: str, *, to_consumers: bool = True) -> None:
        """Give the queue's consumers a background job, or take it from them. Nothing changes where it is so."""
        while True:
            seen, settings = self._refreshed()
            known = jobs_of(seen)
            if (job in known) is to_consumers:
                return
            others = tuple(each for each in known if each != job)
            encoded = with_jobs(settings.encode(), (*others, job) if to_consumers else others)
            record = QueueRecord(self._name, encoded, seen.version + 1)
            if self._retry.verified(
                lambda: (job in jobs_of(self._refreshed()[0])) is to_consumers,
                self._store.update_queue,
                record,
            ):
                self._made(record, settings)
                return

    def _made(self, record: QueueRecord, settings: QueueSettings) -> None:
        """Take over a change, unless a later one was read meanwhile, or the queue was created again."""
        if is_same_queue(record, self._record):
            self._take(record, settings)

    def _are(self, settings: QueueSettings) -> bool:
        return self.refresh() == settings

    def _refreshed(self) -> tuple[QueueRecord, QueueSettings]:
        """Read the record from the store; the caller uses this one, as other threads refresh it meanwhile."""
        record, settings = self._load()
        self._take(record, settings)
        self._mark_read(self.timer())
        return record, settings

    def _mark_read(self, read_at: float) -> None:
        self.read_again_at = read_at + REFRESH_SECONDS
        """The time of the ``timer`` at which they are to be read again. Public, so that sends need no call."""

    def _take(self, record: QueueRecord, settings: QueueSettings) -> None:
        known = self._record  # which another thread may have read later
        if not (is_same_queue(record, known) or is_same_queue(known, record)):
            self.created_again += 1
        self._record, self.jobs = record, jobs_of(record)
        self.layout, self.is_bounded = settings.layout, settings.is_bounded
        self.keeps_events = settings.events is not None
        needs_check = settings.sends_paused or settings.expires is not None
        self.unchecked_bytes = -1 if needs_check else settings.max_message_bytes
        """Bytes of the largest message that is let in without a call of `admit`; -1: every send needs that call."""
        self.known = settings
        """The settings as they were read last, however long ago that is, as are those that follow from them."""

    def _load(self) -> tuple[QueueRecord, QueueSettings]:
        record = self._retry(self._store.load_queue, self._name)
        if record is None:
            raise QueueNotFound(f"queue {self._name!r} does not exist: {_remedy(self._name)}")
        return record, QueueSettings.decode(record.settings, record.name)


def is_same_queue(later: QueueRecord, earlier: QueueRecord) -> bool:
    """Return whether a record is of the same queue, maybe altered, and not of one that was created again."""
    return 0 <= later.version - earlier.version < _MOST_CHANGES


def _remedy(name: str) -> str:
    if name.startswith(INTERNAL):
        return (
            "shardq makes such queues itself; `shardq subscription list TOPIC` shows those of subscriptions"
        )
    return f"create it with `shardq create {name}`"


class Log(msgspec.Struct, frozen=True):
    """The log into which a client writes about a queue."""

    context: QueueContext
    until: int  # microseconds: what comes later goes into the next one


DropOldest: TypeAlias = "Callable[[QueueContext, int], int]"
Attend: TypeAlias = "Callable[[QueueContexts, QueueContext, str], int]"
Dismiss: TypeAlias = "Callable[[QueueContexts, str], None]"


class QueueContext(msgspec.Struct, frozen=True):
    """One queue of one client: its store, its settings and the client's shared parts."""

    name: str
    store: Store
    settle_commit: SettleGroupCommit  # for what is settled, in place of the store
    retry: Retry
    live: LiveSettings
    placement: Placement
    lane_round_robin: LaneRoundRobin
    ids: BundleIds
    counters: MutableCounters
    hooks: Hooks | None
    sibling: Callable[[str], QueueContext]  # another queue of the same client; raises QueueNotFound
    usage: QueueUsage
    drop_oldest: DropOldest  # drops the given number of the oldest messages; returns how many it did
    events: EventWriter[QueueContext]
    logs: dict[tuple[str, str], Log]  # the client's present ones, by kind and queue
    attend: Callable[
        [QueueContext, str], int
    ]  # runs a background job; returns when it has something to do again
    dismiss: Callable[[str], None]  # removes what a background job stands for, when its queue is gone
    outside: Callable[[str], QueueContext] | None = None
    """If all that is done is part of a transaction of the application: a queue of the client that was asked for it."""
    observer: Observer | None = None

    @property
    def settings(self) -> QueueSettings:
        """The queue's settings, at most a second old."""
        return self.live.current()

    @property
    def keeps_events(self) -> bool:
        """True when the queue keeps events, as far as is known; it is not asked for."""
        return self.live.keeps_events


class QueueContexts:
    """The queues of one client, and the objects that they share. Safe for threads, and in forked children."""

    def __init__(
        self,
        store: Store,
        drop_oldest: DropOldest,
        write_events: Write[QueueContext],
        *,
        hooks: Hooks | None = None,
        observer: Observer | None = None,
        retry_seconds: float,
        attend: Attend,
        dismiss: Dismiss,
    ) -> None:
        check_number("retry_seconds", retry_seconds, 0.0, 3_600.0)
        self.hooks, self._drop_oldest, self._attend, self._dismiss = hooks, drop_oldest, attend, dismiss
        self.outside: QueueContexts | None = None
        """Of queues whose requests are part of the application's transaction: those of the client that was asked."""
        self.background: dict[str, PerProcess[Any]] = {}
        """The work beside the calls of the client, by its name. Each has an ``end()``."""
        self.counters, self.observer = ClientCounters(), observer
        if observer is not None:
            observer.opened(self.counters.by_queue, self)
        self.retry = Retry(retry_seconds, self.counters.own.repeated, store.close)
        self.store = store
        self.settle_commit = SettleGroupCommit(store, self.retry.check_open)
        self.events = EventWriter(write_events)
        self._logs: dict[tuple[str, str], Log] = {}
        self._ids = BundleIds()
        self._known: dict[str, QueueContext] = {}
        self._lock = OwnLock()

    def of(self, name: str) -> QueueContext:
        """Open an existing queue, with its present settings. Raises InvalidName or QueueNotFound."""
        name = check_queue_name(name)
        with self._lock.plain:
            known = self._known.get(name)
        with nothing_in_a_new_store(name):
            if known is None:
                return self._opened(name)
            try:
                known.live.refresh()
            except QueueNotFound:
                self.forget(name)
                raise
            return known

    def _opened(self, name: str) -> QueueContext:
        context = QueueContext(
            name=name,
            store=self.store,
            settle_commit=self.settle_commit,
            retry=self.retry,
            live=LiveSettings(self.store, self.retry, name),
            placement=Placement(name),
            lane_round_robin=LaneRoundRobin(),
            ids=self._ids,
            counters=self.counters.of(name),
            hooks=self.hooks,
            sibling=self.of,
            usage=QueueUsage(self.store, self.retry, name),
            drop_oldest=self._drop_oldest,
            events=self.events,
            logs=self._logs,
            attend=self.attend,
            dismiss=self.dismiss,
            outside=None if self.outside is None else self.outside.of,
            observer=self.observer,
        )
        with self._lock.plain:
            if len(self._known) >= _MOST:
                self._known.pop(next(iter(self._known)))
            return self._known.setdefault(name, context)

    def forget(self, name: str) -> None:
        """Forget the settings and shards of a queue, as it was created or deleted."""
        with self._lock.plain:
            self._known.pop(name, None)

    def exists(self, name: str) -> bool:
        """Return whether there is a queue of that name. Raises InvalidName."""
        name = check_queue_name(name)
        try:
            with nothing_in_a_new_store(name):
                return self.retry(self.store.load_queue, name) is not None
        except QueueNotFound:
            return False

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of all queues that start with the prefix, in any order. Raises InvalidSetting."""
        if not isinstance(prefix, str):
            raise InvalidSetting(
                f"prefix={shown(prefix)} is {kind_of(prefix)}: give the beginning of the names, such as 'shop/'"
            )
        return self.retry(self.store.list_queues, prefix) if may_begin_a_name(prefix) else ()

    def attend(self, context: QueueContext, job: str) -> int:
        """Attend to a background job of a queue; returns when it has something to do again, in microseconds."""
        return self._attend(self, context, job)

    def dismiss(self, job: str) -> None:
        """Remove what a background job of a queue that is gone stands for."""
        self._dismiss(self, job)

    def close(self) -> None:
        """End the background threads, write the events that wait, and close the store."""
        for each in list(self.background.values()):
            if (own := each.known) is not None:
                own.end()
        self.events.close()
        self.retry.close()
        self.store.close()


@contextmanager
def nothing_in_a_new_store(queue: str) -> Iterator[None]:
    """Raise QueueNotFound where the store has no schema yet."""
    try:
        yield
    except SchemaMismatch as error:
        if not error.missing:
            raise
        raise QueueNotFound(f"queue {queue!r} does not exist: {error}") from error
