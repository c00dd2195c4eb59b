"""Requests within a transaction of the application, on its own ClientSession.

The server ends a transaction at the first error, so nothing of a request that fails is left, nor of those before it.

Nothing that describes collections can be changed while a transaction has written to them. So a collection that there
is not yet is made outside. One that is closed stays so: what is inserted goes past its validator, and the shard is
listed afterwards, outside. A client that forgets the shard later changes the validator, which waits for the end of the
transaction. One that has marked it before finds the mark gone. So committed messages are listed, whichever client
dies. Nor is an index made of one that the transaction has used, before it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from bson.binary import Binary
from msgspec.structs import replace

from shardq.base.shard import INTERNAL, Shard
from shardq.base.waits import BackgroundThread
from shardq.errors import Closed, QueueNotFound, ShardqError, StoreUnavailable, UnsupportedByStore
from shardq.storage.abilities import this_thread
from shardq.storage.keys import KeyChange
from shardq.storage.mongodb import dedupe, directory, forwarding, group_changes, peeking, removal, settling
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import Row
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.shard_rows import CollectionGone, ShardRows
from shardq.storage.mongodb.transactions import Done, JoinedSession, TransactionDisturbed
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    DedupeEntry,
    Extend,
    Fenced,
    Forward,
    Peek,
    PeekPage,
    Release,
    ShardCounts,
    StoredSlice,
)
from shardq.storage.slicing import renamed
from shardq.storage.store import Capabilities, Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["JoinedStore"]

P = ParamSpec("P")
S = TypeVar("S", Acknowledge, Extend, Release)
T = TypeVar("T")

_READS = frozenset(
    [
        *("load_queue", "list_queues", "list_keys", "seen_consumers", "ping", "diagnose", "wait"),
        "shards",
    ]
)
_PAUSE = 0.02  # seconds between checks whether the application has committed
_LONGEST = 300.0  # seconds for which that is checked


class _Collections(Open):
    """The collections of the store. One that is used in the transaction gets its index of the history after that.

    The server would wait for the end of the transaction, and let all others wait behind it.
    """

    def __init__(self, outside: Open, done: Done) -> None:
        self._outside, self._done = outside, done

    def uuid(self, shard: Shard) -> Binary:
        """Return the uuid of the shard's collection, which is made outside of the transaction."""
        return self._outside.uuid(shard)

    def seen(self, shard: Shard) -> Binary | None:
        """Return the uuid of the shard's collection; None when there is none."""
        return self._outside.seen(shard)

    def index(self, shard: Shard, *, history: bool) -> None:
        """Make the indexes that its collection lacks, now or later."""
        if shard in self._done.used:
            self._done.without_index.add(shard)
        else:
            self._outside.index(shard, history=history)

    def index_later(self) -> None:
        """Make what was put off. If this process ends before, a sweep makes it."""
        for shard in self._done.without_index:
            self._outside.index(shard, history=True)


class _JoinedClient(Client):
    """The objects of the store's client, with a session that is part of the transaction."""

    collections: _Collections

    def __init__(self, outside: Client, session: JoinedSession) -> None:
        self.session, self.clock = session, outside.clock
        self.collections, self.cursors = _Collections(outside.collections, session.done), outside.cursors
        self.signals = outside.signals


class JoinedStore(WrappedStore):
    """A MongoDB store whose changes are part of a transaction. Reads show committed messages, and what it sent.

    A request that needs another transaction or collection is refused before anything is stored.
    """

    def __init__(
        self, store: Store, outside: Client, incarnations: Incarnations, transaction: object
    ) -> None:
        super().__init__(store)
        self._outside, self._incarnations = outside, incarnations
        self._session = JoinedSession(outside.session, transaction)
        self._done = self._session.done
        self._client = _JoinedClient(self._outside, self._session)
        self._listed: set[Shard] = set()
        self._touched: dict[Shard, int] = {}  # with the first moment at which something is due there
        self._thread = this_thread()
        self._teller = BackgroundThread("shardq-commit")

    def is_of(self, transaction: object) -> bool:
        """Return whether this thread is in the transaction that is under way on this session of the application."""
        session = self._session
        return session.transaction is transaction and not session.has_ended and self._thread == this_thread()

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store within a transaction."""
        return self.inner.capabilities.within_transaction()

    def close(self) -> None:
        """Do nothing: the session is the application's."""

    def append(self, request: Append) -> None:
        """Store the bundles in shards that are listed."""
        for name, what in _KEPT_BESIDE.items():
            if request.shard.queue.startswith(name):
                raise _refused(what)
        place = self._enter("append", request.shard)
        self._insert(request.shard, place, request.bundles)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held."""
        return self._settle("acknowledge", settling.acknowledge, request)

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return self._settle("extend", settling.extend, request)

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held."""
        return self._settle("release", settling.release, request)

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append, or neither when some message is lost or gone."""
        if request.in_place and request.append.shard.is_grouped:
            raise _refused("a change of a message of a group")
        place = self._enter("forward", request.append.shard)
        asked, mine = request.acknowledge, self._enter("forward", request.acknowledge.shard)
        self._done.used.add(mine)
        rows = ShardRows(self._session, mine)
        spans = forwarding.spans_of(rows, asked, self.now())
        missing = settling.not_held(rows, spans)
        if missing == Fenced():
            self._settle("forward", settling.acknowledge, replace(asked, spans=spans, moved=True))
            self._insert(request.append.shard, place, request.append.bundles)
        return renamed(asked, missing)

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free."""
        self._check("reserve_keys")
        name = self._incarnations.require(queue)
        return dedupe.reserve_within(self._session, name, entries, window, self.now())

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        self._check("confirm_keys")
        dedupe.confirm(self._session, self._incarnations.of(queue), entries)

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        """Change the keys that stand as the caller saw them."""
        self._check("compare_and_set_keys")
        is_new = any(each.before is None and each.after is not None for each in changes)
        name = self._incarnations.require(queue) if is_new else self._incarnations.of(queue)
        return dedupe.exchange_within(self._session, name, changes)

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, or None."""
        return self.find_many(shard, [(bundle_id, position)])[0]

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        """Return the slices that hold these messages: as they are committed now, or as this transaction has sent them.

        A message that was there when the transaction began may have left the queue since.
        """
        self._check("find_many")
        found = self.inner.find_many(shard, places)
        sent = self._done.sent.get(shard, ())
        own = [place for place in places if place[0] in sent]
        if not own:
            return found
        rows = ShardRows(self._session, self._place(shard))
        seen = dict(zip(own, peeking.find_many(rows, own, self.now()), strict=True))
        return tuple(each or seen.get(place) for place, each in zip(places, found, strict=True))

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count the messages that are committed now, and those that this transaction has sent."""
        self._check("count")
        committed = self.inner.count(shard, sizes=sizes)
        return peeking.counted_too(committed, self._sent(shard, bodies=sizes), self.now())

    def peek(self, request: Peek) -> PeekPage:
        """Return a page of committed messages. The last page ends with those that this transaction has sent."""
        self._check("peek")
        page = self.inner.peek(request)
        if page.after or request.processed:
            return page
        sent = self._sent(request.shard, bodies=request.bodies)
        return PeekPage((*page.slices, *peeking.slices_of(sent, request, self.now())), b"")

    def _sent(self, shard: Shard, *, bodies: bool) -> Iterable[Row]:
        rows = ShardRows(self._session, self._place(shard))
        return rows.read(self._done.sent.get(shard, ()), bodies=bodies).values()

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message; False when it is not stored."""
        place = self._enter("remove", shard)
        with self._gone(shard):
            removed = removal.remove(self._client, place, bundle_id, position)
        self._done.used.add(place)
        if shard.is_grouped:
            self._announce(shard, 0)
        return removed

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Refuse what a transaction has no part in, and do the rest."""
        self._check(method)
        if method not in _READS:
            raise _refused(_WHAT.get(method, f"{method}()"))
        return do(*args, **kwargs)

    def _check(self, method: str) -> None:
        if this_thread() != self._thread:
            raise StoreUnavailable(
                f"a transaction is used by the thread that has joined it, not for {method}() by another one or a "
                "forked child: send and settle there",
                retryable=False,
            )
        if self._session.has_ended:
            raise Closed(
                "the transaction of the application has ended: join another one with client.transaction()"
            )

    def _enter(self, method: str, shard: Shard) -> Shard:
        self._check(method)
        return self._place(shard)

    def _place(self, shard: Shard) -> Shard:
        return replace(shard, queue=self._incarnations.of(shard.queue))

    def _settle(self, method: str, do: Callable[[Client, S], Fenced], request: S) -> Fenced:
        place = self._enter(method, request.shard)
        with self._gone(request.shard):
            fenced = do(self._client, replace(request, shard=place))
        self._done.used.add(place)
        if request.shard.is_grouped:  # what follows in its group may be due since it was sent
            self._announce(request.shard, 0)
        elif isinstance(request, Release):
            self._announce(request.shard, self.now() + request.delay)
        elif self._done.without_index:
            self._teller.run(self._tell_later)
        return fenced

    def _insert(self, shard: Shard, place: Shard, bundles: Sequence[Bundle]) -> None:
        opened = self._outside.collections
        uuid = opened.seen(place) or opened.uuid(place)
        self._done.used.add(place)
        with self._gone(shard):
            if shard.is_grouped:
                group_changes.append(self._client, place, bundles)
            else:
                forwarding.insert_new(ShardRows(self._session, place), bundles, uuid, any_shape=True)
        self._done.sent.setdefault(shard, set()).update(bundle.id for bundle in bundles)
        if place not in self._listed:
            directory.enter_again(self._outside.session, place)
            self._listed.add(place)
        self._announce(shard, min(bundle.due for bundle in bundles))

    @contextmanager
    def _gone(self, shard: Shard) -> Iterator[None]:
        """Make and open the collection for the next attempt when it is another one by now."""
        try:
            yield
        except CollectionGone as error:
            place = self._place(shard)
            self._outside.collections.is_not(place)
            try:
                self._outside.collections.uuid(place)
            except QueueNotFound:
                if not self._incarnations.have_changed({shard.queue: place.queue}):
                    raise
            raise TransactionDisturbed(
                f"the collection of shard {shard} was another one by then; the transaction has ended: do "
                "all of it again"
            ) from error

    def _announce(self, shard: Shard, due: int) -> None:
        """Announce changes after the commit: a hint, as consumers also read now and then."""
        self._touched[shard] = min(due, self._touched.get(shard, due))
        self._teller.run(self._tell_later)

    def _tell_later(self) -> None:
        given_up = time.monotonic() + _LONGEST
        while not self._session.has_ended:
            if time.monotonic() > given_up:
                return
            time.sleep(_PAUSE)
        with suppress(ShardqError):
            self._client.collections.index_later()
            for shard, due in list(self._touched.items()):
                self._outside.cursors.put_off(self._place(shard), due)
                self._outside.signals.announce(shard.queue)


_KEPT_BESIDE = {f"{INTERNAL}bodies": "a large body", f"{INTERNAL}results/": "a result"}
"""Queues that the first of their messages makes. Whether they are there already must not decide what is refused."""

_WHAT = {"probe": "receiving", "claim": "receiving", "create_queue": "a new queue, a large body, or a result"}


def _refused(what: str) -> UnsupportedByStore:
    return UnsupportedByStore(
        f"{what} cannot be part of a transaction of the application on MongoDB: do that outside of it, or send without"
    )
