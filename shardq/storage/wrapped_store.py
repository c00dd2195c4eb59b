"""Stores around other stores.

One changes nothing, and others are built on it. One adds signals, and one measures each request.
"""

# ruff: noqa: D102 -- see the port
from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import msgspec

from shardq.base.shard import Shard
from shardq.storage.abilities import CrossShardStore, SavedFile, SavedStore, Settle, TransactionalStore
from shardq.storage.keys import KeyChange, KeyEntry
from shardq.storage.listening import Listener
from shardq.storage.records import Registrations, SeenConsumer
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Claimed,
    DedupeEntry,
    Extend,
    Fenced,
    Finding,
    Forward,
    Peek,
    PeekPage,
    Probe,
    QueueRecord,
    Release,
    ShardCounts,
    StoredSlice,
    Sweep,
)
from shardq.storage.signals import OpenSignalChannel, Signals
from shardq.storage.store import Capabilities, Store

__all__ = ["ObservedStore", "SignalledStore", "WrappedStore"]

P = ParamSpec("P")
T = TypeVar("T")


class WrappedStore:
    """Does what the inner store does. Override a method, or ``call`` for all of them at once."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of the inner store."""
        return self.inner.capabilities

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: ARG002
        """Make a call of the inner store: every method but ``now`` and ``close`` goes through here."""
        return do(*args, **kwargs)

    def now(self) -> int:
        """See :class:`~shardq.storage.store.Store`, as for every method below."""
        return self.inner.now()

    def close(self) -> None:
        """Close the inner store."""
        self.inner.close()

    def ping(self) -> None:
        self.call("ping", self.inner.ping)

    def create_schema(self) -> None:
        self.call("create_schema", self.inner.create_schema)

    def diagnose(self) -> tuple[Finding, ...]:
        return self.call("diagnose", self.inner.diagnose)

    def create_queue(self, record: QueueRecord) -> bool:
        return self.call("create_queue", self.inner.create_queue, record)

    def load_queue(self, name: str) -> QueueRecord | None:
        return self.call("load_queue", self.inner.load_queue, name)

    def update_queue(self, record: QueueRecord) -> bool:
        return self.call("update_queue", self.inner.update_queue, record)

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        return self.call("list_queues", self.inner.list_queues, prefix)

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        return self.call("drop_queue", self.inner.drop_queue, name, seen)

    def create_shards(self, shards: Sequence[Shard]) -> None:
        self.call("create_shards", self.inner.create_shards, shards)

    def shards(self, queue: str) -> tuple[Shard, ...]:
        return self.call("shards", self.inner.shards, queue)

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        return self.call("probe", self.inner.probe, shards, glance=glance, deep=deep)

    def drop_if_empty(self, shard: Shard) -> bool:
        return self.call("drop_if_empty", self.inner.drop_if_empty, shard)

    def append(self, request: Append) -> None:
        self.call("append", self.inner.append, request)

    def claim(self, request: Claim) -> Claimed:
        return self.call("claim", self.inner.claim, request)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        return self.call("acknowledge", self.inner.acknowledge, request)

    def extend(self, request: Extend) -> Fenced:
        return self.call("extend", self.inner.extend, request)

    def release(self, request: Release) -> Fenced:
        return self.call("release", self.inner.release, request)

    def forward(self, request: Forward) -> Fenced:
        return self.call("forward", self.inner.forward, request)

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        return self.call("settle", cast("CrossShardStore", self.inner).settle, requests)

    def peek(self, request: Peek) -> PeekPage:
        return self.call("peek", self.inner.peek, request)

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        return self.call("find", self.inner.find, shard, bundle_id, position)

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        return self.call("find_many", self.inner.find_many, shard, places)

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        return self.call("remove", self.inner.remove, shard, bundle_id, position)

    def purge(self, shard: Shard) -> int:
        return self.call("purge", self.inner.purge, shard)

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        return self.call("count", self.inner.count, shard, sizes=sizes)

    def sweep(self, request: Sweep) -> int:
        return self.call("sweep", self.inner.sweep, request)

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        return self.call("reserve_keys", self.inner.reserve_keys, queue, entries, window)

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        self.call("confirm_keys", self.inner.confirm_keys, queue, entries)

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        return self.call("compare_and_set_keys", self.inner.compare_and_set_keys, queue, changes)

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        return self.call("list_keys", self.inner.list_keys, queue, after, limit)

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        return self.call("register_consumer", self.inner.register_consumer, queues, consumer, lifetime)

    def deregister_consumer(self, queue: str, consumer: str) -> None:
        self.call("deregister_consumer", self.inner.deregister_consumer, queue, consumer)

    def within(self, connection: object) -> Store:
        return self.call("within", cast("TransactionalStore", self.inner).within, connection)

    def back_up(self, target: str, *, overwrite: bool = False) -> SavedFile:
        return self.call("back_up", cast("SavedStore", self.inner).back_up, target, overwrite=overwrite)

    def restore(self, backup: str) -> SavedFile:
        return self.call("restore", cast("SavedStore", self.inner).restore, backup)

    def check_integrity(self, *, most_bytes: int) -> None:
        inner = cast("SavedStore", self.inner)
        self.call("check_integrity", inner.check_integrity, most_bytes=most_bytes)

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        return self.call("seen_consumers", self.inner.seen_consumers, queue)

    def listen(self, wake: Callable[[], None]) -> Listener:
        return self.call("listen", self.inner.listen, wake)


class SignalledStore(WrappedStore):
    """Does what the inner store does, and signals through a channel. While that is broken, the inner store does."""

    def __init__(self, inner: Store, channel: OpenSignalChannel) -> None:
        super().__init__(inner)
        self.channel, self.signals = channel, Signals(channel)

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of the inner store, and signals."""
        return msgspec.structs.replace(self.inner.capabilities, signals=True)

    def close(self) -> None:
        """Send pending announcements, and close the inner store."""
        self.signals.close()
        self.channel.close()
        super().close()

    def diagnose(self) -> tuple[Finding, ...]:
        return (*super().diagnose(), self.channel.diagnose())

    def append(self, request: Append) -> None:
        super().append(request)
        self.signals.announce(request.shard.queue)

    def release(self, request: Release) -> Fenced:
        fenced = super().release(request)
        self._announce_settled(request)
        return fenced

    def forward(self, request: Forward) -> Fenced:
        fenced = super().forward(request)
        self._announce_settled(request)
        return fenced

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        answers = super().settle(requests)
        for request in requests:
            self._announce_settled(request)
        return answers

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        if request.finish is not None:
            self._announce_next(request.shard)
        return claimed

    def acknowledge(self, request: Acknowledge) -> Fenced:
        fenced = super().acknowledge(request)
        self._announce_settled(request)
        return fenced

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        removed = super().remove(shard, bundle_id, position)
        self._announce_next(shard)
        return removed

    def _announce_settled(self, request: Settle) -> None:
        """Announce messages that may be deliverable now that a request was carried out."""
        if isinstance(request, Release):
            self.signals.announce(request.shard.queue)
        elif isinstance(request, Forward):
            self.signals.announce(request.append.shard.queue)
            self._announce_next(request.acknowledge.shard)
        elif isinstance(request, Acknowledge):
            self._announce_next(request.shard)

    def _announce_next(self, shard: Shard) -> None:
        """Announce the message that may be the first of its group now."""
        if shard.is_grouped:
            self.signals.announce(shard.queue)

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Listen also to appends, releases and next messages of groups, by clients that signal on the channel."""
        return _Relayed(self.signals, super().listen, wake)


class _Relayed:
    """Listens to a channel, and while that is broken to the inner store, too."""

    def __init__(
        self, signals: Signals, inner: Callable[[Callable[[], None]], Listener], wake: Callable[[], None]
    ) -> None:
        self._signals, self._inner = signals, inner(wake)
        self._channel = signals.listen(wake)

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        news = self._channel.news(queues)
        if news or self._signals.watches():
            return news
        return self._inner.news(queues)

    def rest(self) -> None:
        self._channel.rest()
        self._inner.rest()


_PLAIN = {"close", "listen", "now"}
"""Methods that ask the store nothing, or wait for news: they are called as they are."""

_OWN = {"call", "capabilities", "inner", "within"}


class ObservesRequests(Protocol):
    """Notified of requests: see :class:`shardq.Observer`."""

    def requests(self, store: str, operation: str) -> Callable[[float], None]:
        """Return what is called with the seconds of each request of a kind."""
        ...

    def refused(self, store: str, operation: str, error: BaseException) -> None:
        """Note an error."""
        ...


class ObservedStore(WrappedStore):
    """Does what the inner store does, and notifies of each request that has ended. ``name`` is that of the store.

    Each method is one function around that of the inner store: a second call for each request would be noticed.
    """

    def __init__(self, inner: Store, name: str, observer: ObservesRequests) -> None:
        super().__init__(inner)
        self._name, self._observer = name, observer
        for method in vars(WrappedStore).keys() - _OWN:
            if not method.startswith("_") and (do := getattr(inner, method, None)) is not None:
                setattr(self, method, do if method in _PLAIN else _observed(do, name, method, observer))

    def within(self, connection: object) -> Store:
        """Return the store within a transaction of the application, observed as this one."""
        inner = cast("TransactionalStore", self.inner).within(connection)
        return ObservedStore(inner, self._name, self._observer)


def _observed(
    do: Callable[..., Any], name: str, method: str, observer: ObservesRequests
) -> Callable[..., Any]:
    record = observer.requests(name, method)

    def observed(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return do(*args, **kwargs)
        except BaseException as error:
            observer.refused(name, method, error)
            raise
        finally:
            record(perf_counter() - began)

    return observed
