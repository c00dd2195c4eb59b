"""The place of a message that has a key: what stands under the key, so that whoever stores it does so there."""

from __future__ import annotations

import msgspec

from shardq.outgoing_message import lane_of
from shardq.receipt import MessageId
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Bundle

__all__ = ["Place", "place_of"]


class Place(msgspec.Struct, frozen=True):
    """Where a message is stored: its id, its due time and its priority.

    A ``placed`` one has all three in its text; else due time and priority follow from the id and what was copied. The
    ``lane`` is that of its group, which another number of lanes would change.
    """

    id: MessageId
    priority: int
    due: int
    placed: bool = True
    lane: int = 0

    @property
    def text(self) -> str:
        """What stands under the key."""
        lane = f"@{self.lane}" if self.lane else ""
        return f"{self.id}@{self.priority}@{self.due}{lane}" if self.placed else str(self.id)

    @classmethod
    def parse(cls, text: str, priority: int) -> Place:
        """Read a place; a message without one has this priority, and is due at the moment of its id."""
        head, _, tail = text.rpartition(":")  # the name of the queue may have any of these signs
        position, *placed = tail.split("@")
        identity = MessageId.parse(f"{head}:{position}")
        if placed:
            priority, due, lane = (*map(int, placed), 0)[:3]
            return cls(identity, priority, due, lane=lane)
        return cls(identity, priority, made_at(identity.bundle_id), placed=False)


def place_of(identity: MessageId, bundle: Bundle) -> Place:
    """Where a message of a bundle is, or is to be."""
    return Place(identity, bundle.priority, bundle.due, lane=lane_of(bundle.group))
