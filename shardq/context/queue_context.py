"""What everything that works on one queue has in common."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shardq.context.counters import Counters
from shardq.context.live_settings import LiveSettings
from shardq.context.retry import Retry
from shardq.hooks import Hooks
from shardq.settings import QueueSettings
from shardq.sharding.placement import Placement
from shardq.storage.bundle_id import BundleIds
from shardq.storage.store import Store

__all__ = ["QueueContext"]


class QueueContext(msgspec.Struct, frozen=True):
    """One queue of one client: its store, its settings and the client's shared parts."""

    name: str
    store: Store
    retry: Retry
    live: LiveSettings
    placement: Placement
    ids: BundleIds
    counters: Counters
    hooks: Hooks | None
    sibling: Callable[[str], QueueContext]  # another queue of the same client; raises QueueNotFound

    @property
    def settings(self) -> QueueSettings:
        """The queue's settings, at most a second old."""
        return self.live.current()
