"""What a store may do beyond the port, as its capabilities tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from shardq.errors import StoreUnavailable
from shardq.storage.per_process import forks
from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release
from shardq.storage.store import Store

__all__ = [
    "CrossShardStore",
    "OnLoop",
    "SavedFile",
    "SavedStore",
    "Settle",
    "TransactionEnded",
    "TransactionalStore",
    "this_thread",
]

Settle: TypeAlias = Acknowledge | Extend | Release | Forward


class CrossShardStore(Store, Protocol):
    """A store that settles messages of several shards in one step. ``capabilities.settle_across_shards`` tells."""

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        """Carry out the requests, of any shards and queues, one after the other, in one atomic step.

        Each answer MUST be what its own method would give at that point: a request sees what those before it have done.
        What a forward does not do, as something is lost or gone, keeps nothing else from being done. When it raises,
        nothing of any request MUST be done, but for OutcomeUnknown, after which all may be. It MUST be as durable as
        each method alone, and wake listeners as that method does.
        """
        ...


class TransactionEnded(StoreUnavailable):
    """Raised when the store has ended the whole transaction: nothing of it stands, whatever was done before."""

    code = StoreUnavailable.code


class TransactionalStore(Store, Protocol):
    """A store that can be part of a transaction of the application. ``capabilities.transactions`` tells."""

    def within(self, connection: object) -> Store:
        """Return this store on the application's own connection, in the transaction that is under way there.

        An asyncio driver's is given as :class:`OnLoop`.

        What is asked of the answer MUST be done when the application commits, and none of it when it rolls back. A
        request that fails MUST leave nothing of itself in the transaction; TransactionEnded tells that nothing of the
        whole transaction stands. What cannot be part of one MUST be refused by UnsupportedByStore. It MUST raise
        InvalidSetting when there is no transaction on this storage, and Closed after its end; where the application has
        begun another one on the connection by then, the answer MAY go on in that. To close the answer MUST NOT end the
        transaction.
        """
        ...


class OnLoop(msgspec.Struct, eq=False):
    """A connection of an asyncio driver, for a store within its transaction, whose requests come from a thread.

    ``run`` runs a coroutine on the event loop of the connection, and returns its result in the thread. When the
    application has ``left`` the transaction, on the loop, no statement may begin any more.
    """

    connection: object
    run: Callable[[Coroutine[Any, Any, Any]], Any]
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

    When a method raises, and after a crash at any moment, the file that it writes MUST be as it was before, or the new
    one, complete. Both raise InvalidSetting for a path that cannot be used, SchemaMismatch for a file that is empty or
    not of shardq, and StoreUnavailable, also while a client is connected to the file that is to be replaced.
    """

    def back_up(self, target: str, *, overwrite: bool = False) -> SavedFile:
        """Save one state of all queues in the file ``target``. Clients MAY go on meanwhile, and MUST NOT delay it.

        A target that exists MUST be refused unless ``overwrite``.
        """
        ...

    def restore(self, backup: str) -> SavedFile:
        """Put a copy of a backup in the place of the store's file. Nothing of what was there MUST be left."""
        ...

    def check_integrity(self, *, most_bytes: int) -> None:
        """Raise StoreUnavailable if the file exists and is damaged. One above ``most_bytes`` MUST NOT be read."""
        ...


def this_thread() -> tuple[int, int]:
    """What tells this thread from every other one, also from itself in a forked child."""
    return forks.count, threading.get_ident()
