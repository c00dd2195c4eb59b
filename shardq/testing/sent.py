"""What waits in a queue, for tests that ask what was sent."""

from __future__ import annotations

from shardq.message import StoredMessage
from shardq.queue import MANY, Queue
from shardq.receipt import MessageId
from shardq.storage.requests import EntryState

__all__ = ["waiting"]


def waiting(queue: Queue) -> list[StoredMessage]:
    """The messages that wait, now or for later, in the order in which they were sent by one client."""
    found = [each for each in queue.peek(MANY) if each.state in (EntryState.READY, EntryState.DELAYED)]
    return sorted(found, key=lambda message: _place(MessageId.parse(message.id)))


def _place(identity: MessageId) -> tuple[bytes, int]:
    return identity.bundle_id, identity.position
