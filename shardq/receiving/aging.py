"""How old a message is to its queue."""

from __future__ import annotations

from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Bundle

__all__ = ["in_queue_since"]


def in_queue_since(bundle: Bundle) -> int:
    """The moment from which the queue's retention counts: when the messages were sent, or were moved into this queue.

    The id of a bundle that was moved from another queue is made for the moment of the move; what is moved
    within its queue, by ``release(body=)``, keeps the moment of the id that it had.
    """
    return max(bundle.enqueued_at, made_at(bundle.id))
