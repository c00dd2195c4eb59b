"""Stores with one defect each in what they do within a transaction of the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from shardq.base.shard import Shard
from shardq.errors import Closed, InvalidSetting, UnsupportedByStore
from shardq.storage.abilities import TransactionalStore
from shardq.storage.requests import Append, Claim, Claimed, Fenced, Forward, ShardCounts
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_JOINED_CLIENTS", "BROKEN_TRANSACTIONS"]

P = ParamSpec("P")
T = TypeVar("T")


class StoresOutsideTheTransaction(WrappedStore):
    """Stores what was appended in a transaction by itself, whatever became of that."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._later: list[Append] = []

    def within(self, connection: object) -> Store:
        later = self._later

        class Within(WrappedStore):
            def append(self, request: Append) -> None:
                later.append(request)

        return Within(super().within(connection))

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        while method != "within" and self._later:
            self.inner.append(self._later.pop())
        return do(*args, **kwargs)


class AppendsWhateverIsLost(WrappedStore):
    """Leaves the append of a forward in a transaction, though the messages are lost."""

    def within(self, connection: object) -> Store:
        class Within(WrappedStore):
            def forward(self, request: Forward) -> Fenced:
                self.inner.append(request.append)
                return self.inner.acknowledge(request.acknowledge)

        return Within(super().within(connection))


class GoesOnAfterTheTransaction(WrappedStore):
    """Stores outside what comes when the transaction is over."""

    def within(self, connection: object) -> Store:
        outside = self.inner

        class Within(WrappedStore):
            def append(self, request: Append) -> None:
                try:
                    super().append(request)
                except Closed:
                    outside.append(request)

        return Within(super().within(connection))


class EndsTheTransaction(WrappedStore):
    """Commits when what has joined a transaction is closed."""

    def within(self, connection: object) -> Store:
        class Within(WrappedStore):
            def close(self) -> None:
                cast("Any", connection).commit()

        return Within(super().within(connection))


class JoinsWithoutATransaction(WrappedStore):
    """Takes a connection on which no transaction has begun for one that needs none."""

    def within(self, connection: object) -> Store:
        try:
            return cast("TransactionalStore", self.inner).within(connection)
        except InvalidSetting:
            return self.inner


class CountsOnlyCommittedMessages(WrappedStore):
    """Leaves what the transaction has appended out of its counts."""

    def within(self, connection: object) -> Store:
        outside = self.inner

        class Within(WrappedStore):
            def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
                return outside.count(shard, sizes=sizes)

        return Within(super().within(connection))


class RefusesToClaimUnannounced(WrappedStore):
    """Refuses to claim within a transaction, and its capabilities do not say so."""

    def within(self, connection: object) -> Store:
        class Within(WrappedStore):
            def claim(self, request: Claim) -> Claimed:
                raise UnsupportedByStore("receiving cannot be part of a transaction of the application")

        return Within(super().within(connection))


BROKEN_TRANSACTIONS: tuple[type[WrappedStore], ...] = (
    StoresOutsideTheTransaction,
    AppendsWhateverIsLost,
    GoesOnAfterTheTransaction,
    EndsTheTransaction,
    JoinsWithoutATransaction,
)
BROKEN_JOINED_CLIENTS: tuple[type[WrappedStore], ...] = (
    CountsOnlyCommittedMessages,
    RefusesToClaimUnannounced,
)
