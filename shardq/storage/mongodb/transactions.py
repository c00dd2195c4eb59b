"""Transactions of a replica set: tried again when others disturb them, committed again when that was not answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern

from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.sharding.shard import Shard
from shardq.storage import writing
from shardq.storage.mongodb.faults import DRIVER_ERRORS
from shardq.storage.mongodb.session import Session

__all__ = ["BRIEF", "PATIENT", "Disturbed", "transact"]

_TRANSIENT, _UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"
_COMMITS = 3  # beside those that the driver repeats by itself

BRIEF = (0.005, 0.01)
"""Seconds between attempts: for who can do something else meanwhile."""

PATIENT = (*(0.002 * attempt for attempt in range(1, 40)), *[0.5] * 40)
"""Ten seconds together: a transaction of a client that crashed may stand in the way, as of every other write."""

T = TypeVar("T")


class Disturbed(StoreUnavailable):
    """Raised when a transaction was disturbed by others each time; nothing was changed."""


def transact(
    session: Session,
    shard: Shard,
    do: Callable[[ClientSession], tuple[T, bool]],
    pauses: Sequence[float] = PATIENT,
) -> T:
    """Do it in a transaction, anew until nobody disturbs it; the second result of ``do`` is whether to commit it.

    Raises Disturbed when it is disturbed all the time, and OutcomeUnknown when nobody tells what became of a
    commit.
    """
    for _ in _attempts(shard, pauses):
        with session.translated(writing=False):
            transaction = session.client.start_session()
        with transaction:
            try:
                return _once(session, transaction, do)
            except ShardqError as error:
                if not _is_transient(error):
                    raise
    raise AssertionError("attempts have no other end")


def _attempts(shard: Shard, pauses: Sequence[float]) -> Iterator[int]:
    try:
        yield from writing.attempts(shard, pauses)
    except StoreUnavailable as error:
        raise Disturbed(str(error)) from None


def _once(session: Session, transaction: ClientSession, do: Callable[[ClientSession], tuple[T, bool]]) -> T:
    transaction.start_transaction(
        read_concern=ReadConcern("snapshot"), write_concern=session.database.write_concern
    )
    try:
        done, stands = do(transaction)
        if stands:
            _commit(session, transaction)
        return done
    finally:
        if transaction.in_transaction:
            with suppress(*DRIVER_ERRORS):
                transaction.abort_transaction()


def _commit(session: Session, transaction: ClientSession) -> None:
    """Commit, and again while the outcome is unknown: a repeated commit changes nothing more.

    Whatever a later attempt meets, it stays unknown, unless the servers say that there is no such transaction.
    """
    unknown = False
    for left in reversed(range(_COMMITS)):
        try:
            with session.translated(writing=True):
                transaction.commit_transaction()
        except ShardqError as error:
            repeatable = _has_label(error, _UNKNOWN)
            unknown = unknown or repeatable
            if _is_transient(error) or not unknown:
                raise
            if not left or not repeatable:
                raise OutcomeUnknown(
                    f"{session.address} did not say whether it wrote: repeat the call"
                ) from error.__cause__
        else:
            return


def _is_transient(error: ShardqError) -> bool:
    return _has_label(error, _TRANSIENT)


def _has_label(error: ShardqError, label: str) -> bool:
    """Tell whether the driver says so; who finds no server in ten seconds looks no longer."""
    cause = error.__cause__
    return (
        isinstance(cause, PyMongoError)
        and not isinstance(cause, ServerSelectionTimeoutError)
        and cause.has_error_label(label)
    )
