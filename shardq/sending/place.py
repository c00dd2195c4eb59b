"""The place of a message that has a key: what stands under the key, so that whoever stores it does so there."""

from __future__ import annotations

import msgspec

from shardq.receipt import MessageId
from shardq.storage.bundle_id import made_at

__all__ = ["Place"]


class Place(msgspec.Struct, frozen=True):
    """Where a message is stored: its id, its due time and its priority.

    A ``placed`` one has all three in its text; else due time and priority follow from the id and what was copied.
    """

    id: MessageId
    priority: int
    due: int
    placed: bool = True

    @property
    def text(self) -> str:
        """What stands under the key."""
        return f"{self.id}@{self.priority}@{self.due}" if self.placed else str(self.id)

    @classmethod
    def parse(cls, text: str, priority: int) -> Place:
        """Read a place; a message without one has this priority, and is due at the moment of its id."""
        head, _, tail = text.rpartition(":")  # the name of the queue may have any of these signs
        position, *placed = tail.split("@")
        identity = MessageId.parse(f"{head}:{position}")
        if placed:
            return cls(identity, int(placed[0]), int(placed[1]))
        return cls(identity, priority, made_at(identity.bundle_id), placed=False)
