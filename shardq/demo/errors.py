"""What can go wrong in the demo itself; errors of the queue are shardq's own."""

from __future__ import annotations

from shardq.errors import ShardqError

__all__ = ["DataUnavailable", "ProcessFailed"]


class DataUnavailable(ShardqError):
    """Raised when the flights cannot be fetched or read."""

    code = "data_unavailable"


class ProcessFailed(ShardqError):
    """Raised when a producer or a worker ended by itself, or the work came to a halt."""

    code = "process_failed"
