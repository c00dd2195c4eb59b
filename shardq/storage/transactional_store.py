"""What a store does that can be part of a transaction of the application."""

from __future__ import annotations

import threading
from typing import Protocol

from shardq.errors import StoreUnavailable
from shardq.storage.per_process import generation
from shardq.storage.store import Store

__all__ = ["TransactionEnded", "TransactionalStore", "this_thread"]


class TransactionEnded(StoreUnavailable):
    """Raised when the store has ended the whole transaction: nothing of it stands, whatever was done before."""

    code = StoreUnavailable.code


class TransactionalStore(Store, Protocol):
    """A store that can be part of a transaction of the application. ``capabilities.transactions`` tells."""

    def within(self, connection: object) -> Store:
        """Return this store on the application's own connection, in the transaction that is under way there.

        What is asked of the answer MUST be done when the application commits, and none of it when it rolls back. A
        request that fails MUST leave nothing of itself in the transaction; TransactionEnded tells that nothing of the
        whole transaction stands. What cannot be part of one MUST be refused by UnsupportedByStore. It MUST raise
        InvalidSetting when there is no transaction on this storage, and Closed after its end; where the application has
        begun another one on the connection by then, the answer MAY go on in that. To close the answer MUST NOT end the
        transaction.
        """
        ...


def this_thread() -> tuple[int, int]:
    """What tells this thread from every other one, also from itself in a forked child."""
    return generation(), threading.get_ident()
