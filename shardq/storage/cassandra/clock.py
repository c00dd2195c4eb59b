"""How far the cluster's clock is ahead."""

from __future__ import annotations

import time

from shardq.storage.cassandra.session import Session

__all__ = ["lead"]

_NOW = "SELECT now() FROM system.local"
_UUID_EPOCH = 0x01B21DD213814000  # of version 1 UUIDs, in tenths of a microsecond before 1970
_SAMPLES = 5


def lead(session: Session) -> int:
    """Ask by how many microseconds a server's clock is ahead of this machine's monotonic one.

    The fastest of five answers counts.
    """
    return min(_sample(session) for _ in range(_SAMPLES))[1]


def _sample(session: Session) -> tuple[int, int]:
    before = time.monotonic_ns() // 1000
    ((answer,),) = session.read(_NOW, ())
    after = time.monotonic_ns() // 1000
    return after - before, (answer.time - _UUID_EPOCH) // 10 - (before + after) // 2
