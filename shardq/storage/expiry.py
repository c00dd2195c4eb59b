"""When the messages of a bundle expire."""

from __future__ import annotations

from shardq.base.outgoing_message import Bundle
from shardq.storage.bundle_id import made_at

__all__ = ["expired", "in_queue_since"]


def in_queue_since(bundle: Bundle) -> int:
    """Return the moment from which the queue's retention counts: that of the send, or of the move into this queue.

    The id of a bundle that was moved from another queue is made for the moment of the move. A message that is moved
    within its queue, by ``release(body=)``, keeps the moment of its old id.
    """
    return max(bundle.enqueued_at, made_at(bundle.id))


def expired(bundle: Bundle, now: int, since: int | None = None) -> bool:
    """Return whether its messages are not delivered any more: they have expired by now, or came before ``since``."""
    if bundle.expires_at is not None and bundle.expires_at <= now:
        return True
    return since is not None and in_queue_since(bundle) < since
