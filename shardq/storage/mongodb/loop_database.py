"""The application's AsyncDatabase, which a thread uses within the transaction of an AsyncClientSession."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import msgspec
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from shardq.errors import Closed
from shardq.storage.abilities import OnLoop
from shardq.storage.mongodb.documents import Document

__all__ = ["LoopDatabase"]

P = ParamSpec("P")
T = TypeVar("T")


class LoopDatabase(msgspec.Struct, frozen=True):
    """A database of the driver, as far as transactions use it.

    Each request runs on the event loop of the application. None begins after the end of the transaction, which
    ``is_over`` shows: the driver would make it outside.
    """

    database: AsyncDatabase[Document]
    on_loop: OnLoop
    is_over: Callable[[], bool]

    def command(self, *args: Any, **kwargs: Any) -> Document:
        """Carry out a command, as the method of the driver."""
        return self.run(self.database.command, *args, **kwargs)

    def __getitem__(self, name: str) -> LoopCollection:
        """Return a collection."""
        return LoopCollection(self, self.database[name])

    def run(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a request, and wait for its answer. Raises Closed after the end of the transaction."""

        async def made() -> T:
            if self.on_loop.left or self.is_over():
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
