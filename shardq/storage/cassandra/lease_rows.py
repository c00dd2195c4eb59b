"""Lease rows: what was claimed together and is held under one token, as it is stored and as this client wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shardq.storage.cassandra.rows import DUE_INDEX, LEASE, Key, Slice, encode
from shardq.storage.per_process import OwnLock

__all__ = ["Held", "LeaseRow", "decode_lease"]

_MOST = 256  # tokens that are remembered
_GROUP_BYTES = 16  # of the id of a group


class _LeaseValue(msgspec.Struct, frozen=True, array_like=True):
    due: int
    held: bool
    slices: tuple[Slice, ...]
    groups: bytes = b""  # their ids, one after the other


class LeaseRow(msgspec.Struct, frozen=True):
    """Slices that were taken together: held under a token, or released until they are due.

    Its row carries the inline bundles among them; it may carry some that are finished.
    """

    id: bytes  # the token while they are held
    number: int
    due: int
    held: bool
    slices: tuple[Slice, ...]
    seen: bytes | None = None  # its value in the storage, for conditions
    groups: tuple[bytes, ...] = ()  # of which these are the first slices: it follows from their rows

    @property
    def key(self) -> Key:
        """Where it is stored."""
        return Key(LEASE, 0, 0, self.id, self.number)

    def due_of(self, each: Slice) -> int:
        """Return the due time by which one of its slices is ordered."""
        return min(each.due, self.due) if each.unstarted and not self.held else self.due

    @property
    def due_row(self) -> Key:
        """Where it is found by its due time."""
        return Key(DUE_INDEX, 0, self.due, self.id, self.number)

    @property
    def value(self) -> bytes:
        """The value that is stored."""
        return encode(_LeaseValue(self.due, self.held, self.slices, b"".join(self.groups)))

    @classmethod
    def stored(cls, row_id: bytes, number: int, value: bytes) -> LeaseRow:
        """Return the row as it was read."""
        due, held, slices, ids = msgspec.structs.astuple(decode_lease(value))
        groups = tuple(ids[start : start + _GROUP_BYTES] for start in range(0, len(ids), _GROUP_BYTES))
        return cls(row_id, number, due, held, slices, value, groups)


decode_lease = msgspec.msgpack.Decoder(_LeaseValue).decode


class Held:
    """The lease rows that this client wrote last, so that it can settle its messages without a read.

    Later changes by others show when a change of them is not applied.
    """

    def __init__(self) -> None:
        self._lock = OwnLock()
        self.known: dict[tuple[str, bytes], tuple[LeaseRow, ...]] = {}

    def of(self, shard: str, tokens: Iterable[bytes]) -> list[LeaseRow] | None:
        """Return all lease rows under the tokens; None when one of the tokens is not known."""
        found: list[LeaseRow] = []
        for token in dict.fromkeys(tokens):
            leases = self.known.get((shard, token))
            if leases is None:
                return None
            found += leases
        return found

    def put(self, shard: str, token: bytes, leases: Sequence[LeaseRow]) -> None:
        """Note that these are all lease rows under the token, as they were just written."""
        with self._lock.plain:
            self.known.pop((shard, token), None)
            if leases:
                self.known[shard, token] = tuple(
                    msgspec.structs.replace(each, seen=each.value) for each in leases
                )
            if len(self.known) > _MOST:
                self.known.pop(next(iter(self.known)))

    def forget(self, shard: str, tokens: Iterable[bytes]) -> None:
        """Read them again before the next change."""
        with self._lock.plain:
            for token in tokens:
                self.known.pop((shard, token), None)
