"""The abilities of stores beyond the port, as their capabilities show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from inspect import isroutine
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from shardq.errors import StoreUnavailable
from shardq.storage.per_process import forks
from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release
from shardq.storage.store import Store

__all__ = [
    "CrossShardStore",
    "Locked",
    "OnLoop",
    "SavedFile",
    "SavedStore",
    "Settle",
    "TransactionEnded",
    "TransactionalStore",
    "driver_connection",
    "this_thread",
]

C = TypeVar("C")

Settle: TypeAlias = Acknowledge | Extend | Release | Forward


class CrossShardStore(Store, Protocol):
    """A store that settles messages of several shards in one step. See ``capabilities.settle_across_shards``."""

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        """Carry out the requests, of any shards and queues, one after the other, in one atomic step.

        Each answer MUST be what its own method would give at that point: a request sees what those before it have
        done. A forward that does nothing, as a message is lost or gone, MUST NOT affect the others. When it raises,
        nothing of any request MUST be done, but for OutcomeUnknown, after which all may be. It MUST be as durable as
        each method alone, and wake listeners as that method does.
        """
        ...


class TransactionEnded(StoreUnavailable):
    """Raised when the store has ended the whole transaction: nothing of it stands, whatever was done before."""

    code = StoreUnavailable.code


class Locked(StoreUnavailable):
    """Raised when a lock that another transaction keeps, such as an application's, was in the way for too long."""

    code = StoreUnavailable.code


class TransactionalStore(Store, Protocol):
    """A store that can be part of a transaction of the application. See ``capabilities.transactions``."""

    def within(self, connection: object) -> Store:
        """Return this store on the application's own connection, in the transaction that is under way there.

        An asyncio driver's is given as :class:`OnLoop`.

        Its requests MUST take effect when the application commits, and none of them when it rolls back. A request that
        fails MUST leave nothing of itself in the transaction; TransactionEnded means that nothing of the whole
        transaction stands. Requests that cannot be part of one MUST be refused by UnsupportedByStore; where ``claim``
        is among them, ``capabilities.claims`` MUST be False. Each client in the transaction MUST find and count the
        messages that any of them has appended there. It MUST raise InvalidSetting when there is no transaction on this
        storage, and Closed after its end. Where the application has begun another one on the connection by then, it
        MAY continue in that. To close the answer MUST NOT end the transaction.
        """
        ...


class OnLoop(msgspec.Struct, eq=False):
    """A connection of an asyncio driver, for a store within its transaction, whose requests come from a thread.

    ``run`` runs a coroutine on the event loop of the connection, and returns its result in the thread. ``call_soon``
    calls a function there, and does not wait for that. When the application has ``left`` the transaction, on the loop,
    no request may begin any more.
    """

    connection: object
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    call_soon: Callable[[Callable[[], object]], object]
    left: bool = False

    def __repr__(self) -> str:
        return repr(self.connection)


class SavedFile(msgspec.Struct, frozen=True):
    """A file of queues that was saved or restored."""

    path: str
    bytes: int
    schema: int
    queues: int


class SavedStore(Store, Protocol):
    """A store in a file, which shardq itself saves and restores. Its ``capabilities.backup_tools`` is empty.

    When a method raises, and after a crash at any moment, the file that it writes MUST be the old one, or the new one,
    complete. Both raise InvalidSetting for a path that cannot be used, and SchemaMismatch for a file that is empty or
    not of shardq. They raise StoreUnavailable also while a client is connected to the file that is to be replaced.
    """

    def back_up(self, target: str, *, overwrite: bool = False) -> SavedFile:
        """Save one state of all queues in the file ``target``. Clients MAY continue meanwhile, and MUST NOT delay it.

        A target that exists MUST be refused unless ``overwrite``.
        """
        ...

    def restore(self, backup: str) -> SavedFile:
        """Put a copy of a backup in the place of the store's file. Nothing of what was there MUST be left."""
        ...

    def check_integrity(self, *, most_bytes: int) -> None:
        """Raise StoreUnavailable if the file exists and is damaged. One above ``most_bytes`` MUST NOT be read."""
        ...


def driver_connection(connection: object, kind: type[C]) -> C | None:
    """Return the driver's connection, or the one below a Session or Connection of SQLAlchemy, or that of Django.

    None if there is none of this kind.
    """
    found: Any = connection
    for _ in range(4):  # a Session of SQLAlchemy, its Connection, what its pool lends, the driver's
        if isinstance(found, kind):
            return found
        inner = getattr(found, "driver_connection", None) or getattr(found, "connection", None)
        found = inner() if isroutine(inner) else inner  # that of sqlite3 can be called
    return None


def this_thread() -> tuple[int, int]:
    """Identify this thread among all others, also in a forked child."""
    return forks.count, threading.get_ident()
