"""When a measurement cannot give a number."""

from __future__ import annotations

from shardq.errors import ShardqError

__all__ = ["BenchmarkFailed"]


class BenchmarkFailed(ShardqError):
    """Raised when a measurement did not run to its end, or not everything that was sent was received."""

    code = "benchmark_failed"
