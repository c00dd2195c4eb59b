"""How a client attends to the duties of queues, which are what is built on them: schedules, and topics to be relayed.

Nothing of that is imported before there is such a duty.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from shardq.context.queue_context import QueueContext
from shardq.sharding.shard import INTERNAL

if TYPE_CHECKING:
    from shardq.client import Client

__all__ = ["ClientDuties"]

# ruff: noqa: PLC0415, SLF001 - doors to what is built on queues, of the client itself

_TOPICS = f"{INTERNAL}topics/"


class ClientDuties:
    """The duties of all queues of a client, which it does not keep alive."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)

    def attend(self, context: QueueContext, duty: str) -> int:
        """Attend to a duty of a queue; returns when it has something to do again, in microseconds."""
        own = self._client()
        if own is not None and duty.startswith(_TOPICS):
            from shardq.topics.duty import relay_beside

            return relay_beside(own, context, duty)
        from shardq.schedules import keep_going

        return keep_going(context, duty)

    def dismiss(self, duty: str) -> None:
        """Remove what a duty of a queue that is gone stands for: a schedule."""
        own = self._client()
        if own is not None and not duty.startswith(_TOPICS):
            from shardq.schedules import forget

            forget(own._contexts, duty)
