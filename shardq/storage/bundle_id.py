"""Ids of bundles: UUIDs of version 7 with microseconds (RFC 9562, section 6.2, method 3).

The first 60 bits that are not fixed count time in 1/4096 of a millisecond. So ids sort by time and, from one
:class:`BundleIds`, strictly by the order in which they were made.
"""

from __future__ import annotations

import os

from shardq.storage.per_process import OwnLock

__all__ = [
    "BUNDLE_ID_BYTES",
    "BundleIds",
    "bundle_ids_until",
    "derive_bundle_id",
    "made_at",
    "repeatable_bundle_id",
]

BUNDLE_ID_BYTES = 16
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62
_RANDOM_MASK = (1 << 62) - 1


class BundleIds:
    """Makes ids that rise strictly, from several threads too."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._last = 0

    def new(self, now: int) -> bytes:
        """Make a fresh id for a moment in microseconds."""
        with self._lock.plain:
            self._last = ticks = max((now << 12) // 1000, self._last + 1)
        return _assemble(ticks, int.from_bytes(os.urandom(8), "big") & _RANDOM_MASK)


def bundle_ids_until(now: int, count: int) -> list[bytes]:
    """Make ``count`` fresh ids in rising order: the last is for a moment in microseconds, none for a later one."""
    last = (now << 12) // 1000
    return [_assemble(last - left, _random()) for left in reversed(range(count))]


def derive_bundle_id(source: bytes, *parts: str) -> bytes:
    """Derive the id of a bundle that is made out of another one: the same for the same source and parts.

    A move that is repeated after a crash thereby writes the same bundle again instead of a second one.
    """
    value = int.from_bytes(source, "big") & ~_RANDOM_MASK
    return (value | _digest(source, *parts)).to_bytes(BUNDLE_ID_BYTES, "big")


def repeatable_bundle_id(moment: int, sequence: int, *parts: str) -> bytes:
    """Return the bundle id for a moment in microseconds, a number, and some parts.

    The same arguments give the same id for every caller. The ids of one moment sort by their numbers.
    """
    return _assemble((moment << 12) // 1000 + sequence, _digest(b"", *parts, str(sequence)))


def made_at(bundle_id: bytes) -> int:
    """Return the moment that the id was made for, in microseconds, rounded down to the id's resolution."""
    value = int.from_bytes(bundle_id, "big")
    return ((value >> 80 << 12 | value >> 64 & 0xFFF) * 1000) >> 12


def _random() -> int:
    return int.from_bytes(os.urandom(8), "big") & _RANDOM_MASK


def _digest(key: bytes, *parts: str) -> int:
    from hashlib import blake2b  # noqa: PLC0415 - slow to import, and for moves only

    digest = blake2b("\0".join(parts).encode(), key=key, digest_size=8).digest()
    return int.from_bytes(digest, "big") & _RANDOM_MASK


def _assemble(ticks: int, random: int) -> bytes:
    milliseconds, fraction = ticks >> 12, ticks & 0xFFF
    value = milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | random
    return value.to_bytes(BUNDLE_ID_BYTES, "big")
