"""Acknowledging and appending in one atomic step: a transaction, or where there are none an intent.

A standalone server has no transactions. There the intent is written first, with the bundles to append. Then the
messages are taken out of their holder's hands. Then the intent is marked as standing, which is the one moment that
counts. Then the bundles are inserted, the messages finished and the intent deleted. The next sweep undoes a crash
before that moment. A crash after it is completed, by a repetition or the sweep. Deep reads of a standalone server
sweep intents too, as nothing else shows the messages that a crashed client has hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import msgspec
from bson.binary import Binary
from pymongo import ReturnDocument
from pymongo.client_session import ClientSession

from shardq.errors import StoreUnavailable, UnsupportedByStore
from shardq.storage.mongodb import group_changes, queues
from shardq.storage.mongodb.bundles import PART_BUNDLES, PART_BYTES, put
from shardq.storage.mongodb.changing import attempts
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import Document, inserted
from shardq.storage.mongodb.groups import GroupRows, Groups
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.settling import Step, decision, finished, kept, not_held, settle
from shardq.storage.mongodb.shard_rows import CollectionGone, ShardRows
from shardq.storage.mongodb.slicing import as_stored
from shardq.storage.mongodb.transactions import transact
from shardq.storage.requests import Acknowledge, Bundle, Fenced, Forward, Span
from shardq.storage.slicing import pending_in, renamed
from shardq.storage.writing import after_a_write, parts

__all__ = ["drop_intents", "forward", "insert_new", "names_in_intents", "spans_of", "sweep_intents", "undo"]

_INTENTS = "shardq.intent"
_CONFIRM_WITHIN = 10_000  # milliseconds
_GRACE = 30_000_000
_HIDDEN = 3_600_000_000
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Forward).decode


def forward(client: Client, request: Forward) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone. Raises QueueNotFound."""
    fenced = _forward(client, request)
    if not request.append.shard.is_grouped:
        client.cursors.stored(request.append.shard, request.append.bundles)
    return fenced


def _forward(client: Client, request: Forward) -> Fenced:
    session, collections = client.session, client.collections
    now = client.clock.now()  # which connects, so that it is known what the servers are
    if request.acknowledge.keep:
        collections.index(request.acknowledge.shard, history=True)
    if session.has_transactions:
        return _in_transaction(client, request, now)
    if request.acknowledge.shard != request.append.shard:
        raise UnsupportedByStore(
            f"{session.address} is a standalone server: it cannot ack in one shard and send to another in one step. "
            "Make it a replica set of one member, or send first and then ack (atomic=False)"
        )
    if pending_in(request.acknowledge) is not None:
        raise UnsupportedByStore(
            f"{session.address} is a standalone server: it cannot exchange a message that nobody holds in one step. "
            "Make it a replica set of one member"
        )
    return _forward_by_intent(session, collections, request, now)


def _in_transaction(client: Client, request: Forward, now: int) -> Fenced:
    """Try until the shard to append to is open: with nothing done when something is lost or gone."""
    source, target = request.acknowledge.shard, request.append.shard
    for _ in attempts(source):
        uuid = client.collections.uuid(target)
        try:
            transaction = _Transaction(client, request, uuid, now)
            fenced = transact(client.session, source, transaction.run)
        except CollectionGone:
            client.collections.is_not(target)
        else:
            transaction.announce()
            return fenced
    raise AssertionError("attempts have no other end")


class _Transaction:
    """A forward in one transaction. Where a shard has groups, they keep their order."""

    def __init__(self, client: Client, request: Forward, uuid: Binary, now: int) -> None:
        self._client, self._request, self._now = client, request, now
        self._acknowledge, self._append = request.acknowledge, request.append
        self._uuid = uuid
        self._groups: list[Groups] = []

    def run(self, transaction: ClientSession) -> tuple[Fenced, bool]:
        """Return what is lost or gone, and whether anything is to stand."""
        self._groups = []
        fenced = self._finish(transaction)
        if fenced != Fenced():
            return renamed(self._acknowledge, fenced), False
        self._store(transaction)
        for groups in self._groups:
            groups.write()
        return fenced, True

    def announce(self) -> None:
        """Announce the next messages of the groups, when it stands."""
        for groups in self._groups:
            groups.announce(self._client)

    def _finish(self, transaction: ClientSession) -> Fenced:
        shard = self._acknowledge.shard
        spans = spans_of(ShardRows(self._client.session, shard, transaction), self._acknowledge, self._now)
        step = kept(self._now) if self._acknowledge.keep else finished
        if not shard.is_grouped:
            rows = ShardRows(self._client.session, shard, transaction)
            return settle(rows, spans, step, moved=True)
        groups = Groups(
            GroupRows(self._client.session, shard, transaction), self._client.collections.seen(shard)
        )
        self._groups.append(groups)
        missing = group_changes.change(groups, spans, decision(spans, step, moved=True), ends=True)
        if self._request.in_place and missing == Fenced():
            group_changes.put_back(groups, spans, self._now)
        return missing

    def _store(self, transaction: ClientSession) -> None:
        bundles, shard = self._append.bundles, self._append.shard
        if not shard.is_grouped:
            insert_new(ShardRows(self._client.session, shard, transaction), bundles, self._uuid)
            return
        here = self._acknowledge.shard == shard
        if not here:
            self._groups.append(Groups(GroupRows(self._client.session, shard, transaction), self._uuid))
        groups = self._groups[-1]
        in_place = here and self._request.in_place
        groups.append(bundles, group_changes.places(groups, self._acknowledge.spans) if in_place else ())


def spans_of(rows: ShardRows, request: Acknowledge, now: int) -> tuple[Span, ...]:
    """Return the spans; one under `PENDING` with the token that its message has, if nobody holds that.

    In a transaction nobody else can hold it from then on: the server refuses one of two changes.
    """
    pending = pending_in(request)
    return request.spans if pending is None else (as_stored(pending, rows.read([pending.bundle_id]), now),)


def insert_new(rows: ShardRows, bundles: Sequence[Bundle], uuid: Binary, *, any_shape: bool = False) -> None:
    """Insert what is not stored yet: in a transaction nothing may be inserted twice. Raises CollectionGone."""
    stored = rows.read(bundle.id for bundle in bundles)
    new = [bundle for bundle in bundles if bundle.id not in stored]
    for part in parts(new, PART_BYTES, PART_BUNDLES):
        if not rows.insert(list(map(inserted, part)), uuid, any_shape=any_shape):
            raise CollectionGone


def _forward_by_intent(session: Session, collections: Open, request: Forward, now: int) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone. Raises QueueNotFound."""
    collections.uuid(request.append.shard)
    spans, rows = request.acknowledge.spans, _rows(session, request)
    mine = _identity(request)
    if _write(session, mine, request)["stands"]:  # what an earlier attempt has left
        _complete(session, collections, mine, request, now)
        return not_held(rows, spans)
    taken = _under(spans, mine)
    if not_held(rows, taken) != Fenced() and (missing := not_held(rows, spans)) != Fenced():
        return Fenced() if undo(session, collections, mine, request, now, _GRACE) else missing
    with after_a_write(lambda: rows.has_changed):  # they are out of their holder's hands
        settle(rows, spans, _handed_to(mine, now + _HIDDEN))
        stands = not_held(rows, taken) == Fenced() and _confirm_intent(session, mine)
        completed = not stands and undo(session, collections, mine, request, now, _GRACE)
    if stands:
        _complete(session, collections, mine, request, now)
    elif not completed:
        raise StoreUnavailable(
            f"a forward in shard {request.append.shard} was disturbed by others: try again"
        )
    return Fenced()


def sweep_intents(session: Session, collections: Open, queues: Collection[str], now: int) -> int:
    """Complete or undo what crashed clients have left in these queues; returns how many intents that were."""
    overdue = {"queue": {"$in": list(queues)}, "$expr": {"$lte": ["$until", "$$NOW"]}}
    with session.translated(writing=True):
        found = list(session.collection(_INTENTS).find(overdue))
    for each in found:
        undo(session, collections, each["_id"], _decode(each["request"]), now, None)
    return len(found)


def drop_intents(session: Session, queue: str) -> int:
    """Forget the intents of the queue; returns how many."""
    with session.translated(writing=True):
        return session.collection(_INTENTS).delete_many({"queue": queue}).deleted_count


def names_in_intents(session: Session, queue: str) -> set[str]:
    """Return what the queue is or was called in intents."""
    ranges = [{"queue": {"$gte": first, "$lt": end}} for first, end in queues.names_between(queue)]
    with session.translated(writing=False):
        return set(session.collection(_INTENTS).distinct("queue", {"$or": ranges}))


def _write(session: Session, mine: bytes, request: Forward) -> Document:
    """Store the intent unless it is stored; return it."""
    fields = {
        "queue": {"$literal": request.append.shard.queue},
        "request": {"$literal": _encode(request)},
        "until": {"$add": ["$$NOW", _CONFIRM_WITHIN]},
        "stands": False,
    }
    once = {"$set": {name: {"$ifNull": [f"${name}", value]} for name, value in fields.items()}}
    with session.translated(writing=True):
        stored = session.collection(_INTENTS).find_one_and_update(
            {"_id": mine}, [once], upsert=True, return_document=ReturnDocument.AFTER
        )
    assert stored is not None
    return stored


def _confirm_intent(session: Session, mine: bytes) -> bool:
    """Let the intent stand; False when it was undone, or may be by now."""
    in_time = {"_id": mine, "undone": None, "$expr": {"$gt": ["$until", "$$NOW"]}}
    with session.translated(writing=True):
        done = session.collection(_INTENTS).update_one(in_time, {"$set": {"stands": True}})
    return done.matched_count == 1


def undo(
    session: Session, collections: Open, mine: bytes, request: Forward, now: int, grace: int | None
) -> bool:
    """Return the messages to their holder unless the intent stands: that one is completed. True when it was.

    The forwarding client gives ``grace`` for the holder to continue, and releases messages that it has taken since
    another client undid the intent. Others have none: the holder crashed, or is at it again.
    """
    with session.translated(writing=True):
        intents = session.collection(_INTENTS)
        undone = intents.update_one({"_id": mine, "stands": False}, {"$set": {"undone": True}})
        stands = not undone.matched_count and intents.find_one({"_id": mine, "stands": True}) is not None
    if stands:
        _complete(session, collections, mine, request, now)
        return True
    if undone.matched_count or grace is not None:
        rows = _rows(session, request)
        for span in request.acknowledge.spans:
            settle(rows, _under((span,), mine), _handed_to(span.token, now + (grace or 0)))
        _delete(session, mine)
    return False


def _complete(session: Session, collections: Open, mine: bytes, request: Forward, now: int) -> None:
    """Do what an intent says that stands. Where this fails it is done later: raises OutcomeUnknown."""
    with after_a_write():
        rows = _rows(session, request)
        if request.acknowledge.keep:
            collections.index(request.acknowledge.shard, history=True)
        put(rows, collections, request.append.bundles)
        step = kept(now) if request.acknowledge.keep else finished
        settle(rows, _under(request.acknowledge.spans, mine), step, moved=True)
        _delete(session, mine)


def _delete(session: Session, mine: bytes) -> None:
    with session.translated(writing=True):
        session.collection(_INTENTS).delete_one({"_id": mine})


def _handed_to(token: bytes, due: int) -> Step:
    return lambda _, held: ([msgspec.structs.replace(each, token=token, due=due) for each in held], [])


def _under(spans: tuple[Span, ...], token: bytes) -> tuple[Span, ...]:
    return tuple(msgspec.structs.replace(span, token=token) for span in spans)


def _rows(session: Session, request: Forward) -> ShardRows:
    return ShardRows(session, request.acknowledge.shard)


def _identity(request: Forward) -> bytes:
    """Return the token that takes the place of the holder's: the same for a repetition."""
    parts = (request.acknowledge.spans, [bundle.id for bundle in request.append.bundles])
    return blake2b(_encode(parts), key=b"forward", digest_size=16).digest()
