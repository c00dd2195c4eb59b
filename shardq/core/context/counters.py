"""The counters of a client."""

from __future__ import annotations

import msgspec

from shardq.storage.per_process import OwnLock

__all__ = ["Counters", "Counts"]


class Counts(msgspec.Struct, frozen=True):
    """Counters since the client was opened, in messages unless another unit is named."""

    sent: int = 0
    deduplicated: int = 0  # not stored because their dedupe key or unique key was taken
    received: int = 0
    redelivered: int = 0  # of those received: not for the first time
    acked: int = 0
    released: int = 0
    extended: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    expired: int = 0  # dropped because their ttl or the retention was over
    dropped: int = 0  # the oldest of a full queue, for others
    lease_lost: int = 0
    claims: int = 0  # claims that were tried
    lock_contention: int = 0  # claims that found the shard locked by another
    empty_reads: int = 0  # reads that found no message
    retries: int = 0  # store calls that were repeated
    events_lost: int = 0  # events that could not be written to the log of their queue


class Counters:
    """Counts, from several threads."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._values = dict.fromkeys(Counts.__struct_fields__, 0)

    def add(self, **amounts: int) -> None:
        """Add to counters by name."""
        with self._lock.plain:
            for name, amount in amounts.items():
                self._values[name] += amount

    def repeated(self) -> None:
        """Count a call of the store that is repeated."""
        self.add(retries=1)

    def read(self) -> Counts:
        """Return the present values of the counters."""
        with self._lock.plain:
            return Counts(**self._values)
