"""Broadcasts: messages for all current listeners."""

from __future__ import annotations

from shardq.broadcast.broadcast import Broadcast, Subscription

__all__ = ["Broadcast", "Subscription"]
