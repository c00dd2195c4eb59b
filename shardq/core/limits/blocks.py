"""How permits are stored: permit 0, 1, 2, ... as messages of bundles that always have the same ids.

The first 16 permits are bundles of their own. Each further bundle holds as many permits as there are before it, so that
many permits are few rows, and a number of permits that changes never needs another cut.
"""

from __future__ import annotations

import msgspec

from shardq.base.outgoing_message import Bundle
from shardq.storage.bundle_data import BundleData, encode_bundle
from shardq.storage.bundle_id import repeatable_bundle_id

__all__ = ["MOST_PERMITS", "Block", "Blocks", "blocks_of"]

MOST_PERMITS = 1_024
_SINGLES = 16
_MOMENT = 1_767_225_600_000_000  # of all permits: their ids differ by the number of their first permit
_DUE = 946_684_800_000_000  # of all permits: long ago


class Block(msgspec.Struct, frozen=True):
    """Permits ``first`` .. ``first + count - 1``, which are one bundle."""

    first: int
    count: int


def blocks_of(permits: int) -> list[Block]:
    """The blocks that hold so many permits. The last one may hold more."""
    blocks: list[Block] = []
    first = 0
    while first < permits:
        blocks.append(Block(first, 1 if first < _SINGLES else first))
        first += blocks[-1].count
    return blocks


class Blocks:
    """The bundles of the permits of one queue. Another ``kind`` of permits has other bundles."""

    def __init__(self, queue: str, kind: str = "") -> None:
        self._queue, self._kind = queue, kind
        self._firsts = {self._id(block): block.first for block in blocks_of(MOST_PERMITS)}

    def bundles(self, permits: int) -> list[Bundle]:
        """The bundles that hold so many permits. They are alike whoever stores them: a store may tell them by that."""
        return [
            Bundle(self._id(block), 0, _DUE, _DUE, block.count, encode_bundle(BundleData(_bodies(block))))
            for block in blocks_of(permits)
        ]

    def number(self, bundle_id: bytes, position: int) -> int:
        """The number of the permit that a message is; that of none, if it is no permit."""
        return self._firsts.get(bundle_id, MOST_PERMITS) + position

    def _id(self, block: Block) -> bytes:
        return repeatable_bundle_id(_MOMENT, block.first, "permits", self._queue, self._kind)


def _bodies(block: Block) -> list[bytes]:
    return [b"%d" % number for number in range(block.first, block.first + block.count)]
