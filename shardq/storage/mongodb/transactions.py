"""Transactions of a replica set: the store's own, and those of the application.

Its own are tried again when others disturb them, and committed again when that was not answered. In those of the
application requests go through its ClientSession, and its driver does all of it again. Within the transaction of an
AsyncClientSession a thread uses the application's AsyncDatabase on its event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
from pymongo import MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern

from shardq.base.shard import Shard
from shardq.base.texts import kind_of, shown
from shardq.errors import Closed, InvalidSetting, OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage import writing
from shardq.storage.abilities import OnLoop, TransactionEnded
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.faults import DRIVER_ERRORS, translate
from shardq.storage.mongodb.guarantees import check_write_concern
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import OTHER_COLLECTION, CollectionGone

__all__ = [
    "BRIEF",
    "PATIENT",
    "Disturbed",
    "JoinedSession",
    "LoopDatabase",
    "TransactionDisturbed",
    "commit",
    "is_transient",
    "transact",
]

P = ParamSpec("P")
T = TypeVar("T")

_TRANSIENT, _UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"
_DONE = "_shardq_done"  # an attribute of a session of the application
_COMMITS = 3  # beside those that the driver repeats automatically

BRIEF = (0.005, 0.01)
"""Seconds between attempts: for who can do something else meanwhile."""

PATIENT = (*(0.002 * attempt for attempt in range(1, 40)), *[0.5] * 40)
"""Ten seconds together: a transaction of a client that crashed may delay it, as every other write."""


class LoopDatabase(msgspec.Struct, frozen=True):
    """A database of the driver, as far as transactions use it.

    Each request runs on the event loop of the application. None begins after the end of the transaction, which
    ``has_ended`` shows: the driver would make it outside.
    """

    database: AsyncDatabase[Document]
    on_loop: OnLoop
    has_ended: Callable[[], bool]

    def command(self, *args: Any, **kwargs: Any) -> Document:
        """Carry out a command, as the method of the driver."""
        return self.run(self.database.command, *args, **kwargs)

    def __getitem__(self, name: str) -> LoopCollection:
        """Return a collection."""
        return LoopCollection(self, self.database[name])

    def run(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a request, and wait for its answer. Raises Closed after the end of the transaction."""

        async def made() -> T:
            if self.on_loop.left or self.has_ended():
                raise Closed(
                    "the transaction of the application has ended: join another one with client.transaction()"
                )
            return await call(*args, **kwargs)

        answer: T = self.on_loop.run(made())
        return answer


class LoopCollection(msgspec.Struct, frozen=True):
    """A collection of the driver, as far as transactions use it."""

    database: LoopDatabase
    collection: AsyncCollection[Document]

    def find(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Return all documents that are found."""
        return self.database.run(self.collection.find(*args, **kwargs).to_list)

    def bulk_write(self, *args: Any, **kwargs: Any) -> Any:
        """Make several changes, as the method of the driver."""
        return self.database.run(self.collection.bulk_write, *args, **kwargs)


class Disturbed(StoreUnavailable):
    """Raised when a transaction was disturbed by others each time; nothing was changed."""

    code = StoreUnavailable.code


def transact(
    session: Session,
    shard: Shard,
    do: Callable[[ClientSession], tuple[T, bool]],
    pauses: Sequence[float] = PATIENT,
) -> T:
    """Do it in a transaction, anew until it is not disturbed; the second result of ``do`` is whether to commit it.

    Raises Disturbed when it is disturbed all the time, and OutcomeUnknown when the result of a commit is not known.
    """
    for _ in _attempts(shard, pauses):
        with session.translated(writing=False):
            transaction = session.client.start_session()
        with transaction:
            try:
                return _once(session, transaction, do)
            except ShardqError as error:
                if not is_transient(error):
                    raise
            except BaseException:
                # An interrupt may come before the commit or abort is sent. The driver sends none then, and the server
                # would keep the transaction's locks for a minute.
                with suppress(*DRIVER_ERRORS):
                    session.client.admin.command("killSessions", [transaction.session_id])
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
            commit(session, transaction)
        return done
    finally:
        if transaction.in_transaction:
            with suppress(*DRIVER_ERRORS):
                transaction.abort_transaction()


def commit(session: Session, transaction: ClientSession) -> None:
    """Commit, and again while the outcome is unknown: a repeated commit changes nothing more.

    It stays unknown after later attempts, unless the servers report that there is no such transaction.
    """
    unknown = False
    for left in reversed(range(_COMMITS)):
        try:
            with session.translated(writing=True):
                transaction.commit_transaction()
        except ShardqError as error:
            repeatable = _has_label(error, _UNKNOWN)
            unknown = unknown or repeatable
            if is_transient(error) or not unknown:
                raise
            if not left or not repeatable:
                raise OutcomeUnknown(
                    f"{session.address} did not say whether it wrote: repeat the call"
                ) from error.__cause__
        else:
            return


def is_transient(error: ShardqError) -> bool:
    """Return whether the same transaction may succeed when all of it is done again."""
    return _has_label(error, _TRANSIENT)


def _has_label(error: ShardqError, label: str) -> bool:
    """Return whether the driver marks the error so; a search of ten seconds that finds no server is not repeated."""
    cause = error.__cause__
    return (
        isinstance(cause, PyMongoError)
        and not isinstance(cause, ServerSelectionTimeoutError)
        and cause.has_error_label(label)
    )


class TransactionDisturbed(TransactionEnded, PyMongoError):
    """Raised when the server has ended the transaction, and doing all of it again may help.

    It has the driver's labels, so ``ClientSession.with_transaction`` does that.
    """

    code = TransactionEnded.code

    def has_error_label(self, label: str) -> bool:
        """Return whether the driver has this label."""
        return label == _TRANSIENT


class Done(msgspec.Struct):
    """The changes of a transaction of the application so far, by all clients and threads that have joined it."""

    begun: object
    used: set[Shard] = msgspec.field(default_factory=set)  # shards whose collections are in use
    without_index: set[Shard] = msgspec.field(default_factory=set)  # those that lack an index for the history
    sent: dict[Shard, set[bytes]] = msgspec.field(default_factory=dict)  # bundles


class JoinedSession(Session):
    """Sends requests on the application's own session, within the transaction that is under way there."""

    transaction: ClientSession

    def __init__(self, outside: Session, connection: object) -> None:
        self._on_loop = connection if isinstance(connection, OnLoop) else None
        given = connection.connection if isinstance(connection, OnLoop) else connection
        kind = ClientSession if self._on_loop is None else AsyncClientSession
        if not isinstance(given, kind):
            where = "a sync" if self._on_loop is None else "an asyncio"
            raise InvalidSetting(
                f"connection={shown(given)} is {kind_of(given)}: "
                f"give the pymongo {kind.__name__} of the transaction to {where} client"
            )
        transaction = cast("ClientSession", given)  # of either kind, as far as it is used here
        self.address, self.outside, self.transaction = outside.address, outside, transaction
        self._has_transactions = True
        if not transaction.in_transaction:
            raise InvalidSetting(
                "connection= is a ClientSession without a transaction: call start_transaction() on it first, or join "
                "within the callback of with_transaction()"
            )
        self._begun = _options(transaction)
        self.done = _done_in(transaction, self._begun)
        asked = getattr(self._begun, "write_concern", None) or transaction.client.write_concern
        check_write_concern({"w": "majority", "j": True} | asked.document, "of the application's transaction")
        self._check_servers()

    @property
    def client(self) -> MongoClient[Document]:
        """The application's client."""
        return cast("MongoClient[Document]", self.transaction.client)

    @property
    def database(self) -> Database[Document]:
        """The database of the queues, through the application's client."""
        ours = self.outside.database
        theirs = self.client.get_database(
            ours.name, codec_options=ours.codec_options, read_preference=ours.read_preference
        )
        if self._on_loop is None:
            return theirs
        on_loop = LoopDatabase(cast("AsyncDatabase[Document]", theirs), self._on_loop, lambda: self.has_ended)
        return cast("Database[Document]", on_loop)

    @property
    def has_ended(self) -> bool:
        """True from the end of the transaction on."""
        return not self.transaction.in_transaction or _options(self.transaction) is not self._begun

    @contextmanager
    def translated(self, *, writing: bool) -> Iterator[None]:  # noqa: ARG002 - nothing is written before the commit
        """Raise shardq's errors instead of the driver's: Disturbed for what the driver would do again."""
        try:
            yield
        except TransactionDisturbed:
            raise
        except DRIVER_ERRORS as error:
            if isinstance(error, OperationFailure) and error.code == OTHER_COLLECTION:
                raise CollectionGone from error
            raised = translate(error, str(self.address), writing=False)
            if isinstance(error, PyMongoError) and error.has_error_label(_TRANSIENT):
                raise TransactionDisturbed(
                    f"{raised}; the transaction has ended: do all of it again"
                ) from error
            raise raised from error

    def close(self) -> None:
        """Do nothing: the session is the application's."""

    def _check_servers(self) -> None:
        with self.translated(writing=False):
            for session in (self, self.outside):
                if not session.client.nodes:  # it has not connected yet
                    session.database.command("ping")
            theirs, ours = self.client.nodes, self.outside.client.nodes
        if not theirs & ours:
            raise InvalidSetting(
                f"connection= is a session with {_named(theirs)}, and the queues are on {_named(ours)}: begin the "
                "transaction on a MongoClient of the servers of the queues, by the same names"
            )


def _options(session: ClientSession) -> object:
    """Return an object that differs in each transaction; no public one distinguishes them."""
    return session._transaction.opts  # noqa: SLF001


def _done_in(session: ClientSession, begun: object) -> Done:
    """Return the record of a transaction, which its session keeps: several clients and threads may join one."""
    done: Done | None = getattr(session, _DONE, None)
    if done is None or done.begun is not begun:
        setattr(session, _DONE, done := Done(begun))
    return done


def _named(nodes: frozenset[tuple[str, int | None]]) -> str:
    return ", ".join(sorted(f"{host}:{port}" for host, port in nodes)) or "no server"
