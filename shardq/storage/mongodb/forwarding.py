"""Acknowledging and appending in one atomic step: a transaction, or where there are none an intent."""

from __future__ import annotations

from contextlib import suppress

from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from shardq.errors import ShardqError, UnsupportedByStore
from shardq.storage.mongodb import intents
from shardq.storage.mongodb.changing import attempts
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import inserted
from shardq.storage.mongodb.faults import DRIVER_ERRORS
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.settling import finished, kept, settle
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.requests import Fenced, Forward
from shardq.storage.server_clock import ServerClock

__all__ = ["forward"]

_TRANSIENT = "TransientTransactionError"


def forward(session: Session, collections: Open, request: Forward, clock: ServerClock) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone. Raises QueueNotFound."""
    now = clock.now()  # which connects, so that it is known what the servers are
    if session.has_transactions:
        return _in_transactions(session, collections, request, now)
    if request.acknowledge.shard != request.append.shard:
        raise UnsupportedByStore(
            f"{session.address} is a standalone server: it cannot ack in one shard and send to another in one step. "
            "Make it a replica set of one member, or send first and then ack (atomic=False)"
        )
    return intents.forward(session, collections, request, now)


def _in_transactions(session: Session, collections: Open, request: Forward, now: int) -> Fenced:
    """Try one transaction after the other until one is not disturbed by others."""
    for _ in attempts(request.acknowledge.shard):
        collections.uuid(request.append.shard)
        with session.translated(writing=False):
            transaction = session.client.start_session()
        with transaction:
            try:
                fenced = _in_transaction(session, collections, request, now, transaction)
            except ShardqError as error:
                if not _is_transient(error):
                    raise
            else:
                if fenced is not None:
                    return fenced
    raise AssertionError("attempts have no other end")


def _in_transaction(
    session: Session, collections: Open, request: Forward, now: int, transaction: ClientSession
) -> Fenced | None:
    """Return what is lost or gone, with nothing done if there is any; None when it has to be tried again."""
    transaction.start_transaction(
        read_concern=ReadConcern("snapshot"), write_concern=session.database.write_concern
    )
    try:
        source = ShardRows(session, request.acknowledge.shard, transaction)
        step = kept(now) if request.acknowledge.keep else finished
        fenced = settle(source, request.acknowledge.spans, step, moved=True)
        if fenced != Fenced():
            return fenced
        if not _append(ShardRows(session, request.append.shard, transaction), collections, request):
            return None
        with session.translated(writing=True):
            transaction.commit_transaction()
        return fenced
    finally:
        if transaction.in_transaction:
            with suppress(*DRIVER_ERRORS):
                transaction.abort_transaction()


def _append(rows: ShardRows, collections: Open, request: Forward) -> bool:
    """Insert what is not stored yet: in a transaction nothing may be inserted twice."""
    stored = rows.read(bundle.id for bundle in request.append.bundles)
    documents = [inserted(bundle) for bundle in request.append.bundles if bundle.id not in stored]
    if not documents or rows.insert(documents, collections.uuid(rows.shard)):
        return True
    collections.is_not(rows.shard)
    return False


def _is_transient(error: ShardqError) -> bool:
    cause = error.__cause__
    return isinstance(cause, PyMongoError) and cause.has_error_label(_TRANSIENT)
