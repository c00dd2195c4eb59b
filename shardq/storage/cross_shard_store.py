"""What a store does that settles messages of several shards in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release
from shardq.storage.store import Store

__all__ = ["CrossShardStore", "Settle"]

Settle: TypeAlias = Acknowledge | Extend | Release | Forward


class CrossShardStore(Store, Protocol):
    """A store that settles messages of several shards in one step. ``capabilities.settle_across_shards`` tells."""

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        """Carry out the requests, of any shards and queues, one after the other, in one atomic step.

        Each answer MUST be what its own method would give at that point: a request sees what those before it have done.
        What a forward does not do, as something is lost or gone, keeps nothing else from being done. When it raises,
        nothing of any request MUST be done, but for OutcomeUnknown, after which all may be. It MUST be as durable as
        each method by itself, and end `wait` as that does.
        """
        ...
