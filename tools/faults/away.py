"""One shard that cannot be reached, while all others can: as where the replicas of its token range are away.

The proxies see connections, which carry the requests of all shards, so this is done above the driver: what a client
asks of the shard, alone or among others, fails before it is sent, or after it was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.requests import Sweep
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

from .dial import Dial, Loss

__all__ = ["Away"]

P = ParamSpec("P")
T = TypeVar("T")

HANG = 0.5  # seconds until a client gives up
WRITES = {"append", "claim", "acknowledge", "extend", "release", "forward", "remove", "purge", "sweep"}


class Away(WrappedStore):
    """Lets requests fail that concern the shard of a queue which the dial has away."""

    def __init__(self, inner: Store, dial: Dial, queue: str) -> None:
        super().__init__(inner)
        self._dial, self._queue = dial, queue

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        away = self._dial.away
        if away is None or not args or not self._concerns(args[0], away[:2]):
            return do(*args, **kwargs)
        how = away[2]
        if how is Loss.REFUSED:
            raise StoreUnavailable("no replica of this shard can be reached")
        if how is Loss.UNANSWERED:
            do(*args, **kwargs)
        time.sleep(HANG)
        if method in WRITES:
            raise OutcomeUnknown("no replica of this shard has answered: repeat the call")
        raise StoreUnavailable("no replica of this shard has answered")

    def _concerns(self, argument: Any, place: tuple[int, int]) -> bool:
        if isinstance(argument, Sweep):
            return argument.queue == self._queue
        return any(each == Shard(self._queue, *place) for each in _shards_of(argument))


def _shards_of(argument: Any) -> list[Shard]:
    if isinstance(argument, Shard):
        return [argument]
    if isinstance(argument, list | tuple):
        return [shard for shard in argument if isinstance(shard, Shard)]
    if hasattr(argument, "acknowledge"):
        return [argument.acknowledge.shard, argument.append.shard]
    return [argument.shard] if hasattr(argument, "shard") else []
