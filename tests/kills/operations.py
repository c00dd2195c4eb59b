"""The operations of a shard that a client may die in, and which messages are there before and after."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

import msgspec

from shardq.base.shard import Shard
from shardq.storage.abilities import CrossShardStore
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Extend,
    Forward,
    Release,
    Span,
    Sweep,
)
from shardq.storage.store import Store
from shardq.testing import BundleFactory
from shardq.testing.messages import Message, of_bundle, of_bundles, of_spans

__all__ = ["OPERATIONS", "Given", "Operation", "group_in", "prepare"]

HOUR = 3600.0


class Given(msgspec.Struct, frozen=True):
    """Bundles of a shard, four of whose messages may be held, and one to forward."""

    shard: Shard
    bundles: tuple[Bundle, ...]
    new: Bundle
    lease: int
    token: bytes = msgspec.field(default_factory=lambda: os.urandom(16))

    @property
    def spans(self) -> tuple[Span, ...]:
        first, second, *_ = self.bundles
        return Span(first.id, 0, 3, self.token), Span(second.id, 0, 1, self.token)

    @property
    def all(self) -> set[Message]:
        return set(of_bundles(*self.bundles))

    @property
    def held(self) -> set[Message]:
        return set(of_spans(self.spans))

    @property
    def append(self) -> Append:
        return Append(self.shard, self.bundles)

    @property
    def ack(self) -> Acknowledge:
        return Acknowledge(self.shard, self.spans)

    @property
    def beside(self) -> Shard:
        """Another shard of the queue."""
        return Shard(self.shard.queue, self.shard.time_shard, self.shard.number + 1000)


class Operation(msgspec.Struct, frozen=True):
    """What a client does, and the messages that are to be delivered when it has done so."""

    act: Callable[[Store, Given], object]
    after: Callable[[Given], set[Message]]
    stored: bool = True  # the bundles are there before
    held: bool = True  # and four messages are held
    delay: float = 0  # when the bundles are due
    whole: bool = True  # what it does to a bundle it does in one step
    across: bool = False  # touches the shard beside
    together: bool = False  # with several requests in one step
    alone: bool = False  # goes through all shards of the queue, which therefore has one only


def prepare(operation: Operation, store: Store, shard: Shard, lease: int) -> Given:
    """Bring the shard to where the operation starts; in one of groups, all bundles are of the same."""
    make = BundleFactory(store.now)
    group = group_in(shard)
    bundles = tuple(make(count, delay=operation.delay, group=group) for count in (3, 5, 1))
    given = Given(shard, bundles, make(2, group=group), lease)
    if operation.stored:
        store.append(given.append)
    if operation.held:
        store.claim(Claim(shard, given.token, 4, lease))
    return given


def group_in(shard: Shard) -> str:
    """The group of what is sent to a shard."""
    return "a" if shard.is_grouped else ""


def _everything(given: Given) -> set[Message]:
    return given.all


def _rest(given: Given) -> set[Message]:
    return given.all - given.held


def _moved(given: Given) -> set[Message]:
    return _rest(given) | set(of_bundle(given.new))


def _append(store: Store, given: Given) -> None:
    store.append(given.append)


def _release(store: Store, given: Given, *, delay: int = 0, started: bool = True) -> None:
    store.release(Release(given.shard, given.spans, delay, started))


def _forward(store: Store, given: Given, *, to: Shard) -> None:
    store.forward(Forward(given.ack, Append(to, (given.new,))))


def _settle(store: Store, given: Given) -> None:
    """Ack one bundle's messages and move the other's, in two shards."""
    acked, moved = given.spans
    requests = (
        Acknowledge(given.shard, (acked,)),
        Forward(Acknowledge(given.shard, (moved,)), Append(given.beside, (given.new,))),
    )
    cast("CrossShardStore", store).settle(requests)


def _expire(store: Store, given: Given) -> None:
    for _ in range(20):
        if not store.sweep(Sweep(given.shard.queue, 2**62)):
            break


def _finish_and_expire(store: Store, given: Given) -> None:
    store.acknowledge(Acknowledge(given.shard, given.spans, keep=True))
    _expire(store, given)


OPERATIONS: dict[str, Operation] = {
    "append": Operation(_append, _everything, stored=False, held=False),
    "append what was due long ago": Operation(_append, _everything, stored=False, held=False, delay=-HOUR),
    "append what is due soon": Operation(_append, _everything, stored=False, held=False, delay=0.2),
    "claim": Operation(
        lambda store, given: store.claim(Claim(given.shard, given.token, 4, given.lease)),
        _everything,
        held=False,
    ),
    "acknowledge": Operation(lambda store, given: store.acknowledge(given.ack), _rest),
    "acknowledge and keep": Operation(
        lambda store, given: store.acknowledge(msgspec.structs.replace(given.ack, keep=True)), _rest
    ),
    "acknowledge as moved": Operation(
        lambda store, given: store.acknowledge(msgspec.structs.replace(given.ack, moved=True)), _rest
    ),
    "extend": Operation(
        lambda store, given: store.extend(Extend(given.shard, given.spans, given.lease)), _everything
    ),
    "release": Operation(_release, _everything),
    "release for later": Operation(
        lambda store, given: _release(store, given, delay=given.lease), _everything
    ),
    "give back": Operation(lambda store, given: _release(store, given, started=False), _everything),
    "put off": Operation(
        lambda store, given: _release(store, given, delay=given.lease, started=False), _everything
    ),
    "forward": Operation(lambda store, given: _forward(store, given, to=given.shard), _moved),
    "forward across": Operation(
        lambda store, given: _forward(store, given, to=given.beside), _moved, across=True
    ),
    "remove": Operation(
        lambda store, given: store.remove(given.shard, given.bundles[0].id, 1),
        lambda given: given.all - {(given.bundles[0].id, 1)},
    ),
    "purge": Operation(lambda store, given: store.purge(given.shard), lambda _: set(), whole=False),
    "expire": Operation(_finish_and_expire, _rest, alone=True),
    "settle across": Operation(_settle, _moved, across=True, together=True),
}
