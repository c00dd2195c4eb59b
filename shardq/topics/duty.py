"""Relaying beside the consumers of a subscription, however they came to its queue.

The record of the queue names this as a duty of its consumers (:mod:`shardq.core.context.duties`). So workers of a
pool, and consumers of several queues, which know of no topic, have it relayed by a thread of their process.
"""

from __future__ import annotations

from shardq.base.clock import microseconds
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.topics.background import background_of
from shardq.topics.names import topic_of_duty

__all__ = ["relay_beside"]

_AGAIN_SECONDS = 30.0
_SERVED_SECONDS = 90.0


def relay_beside(contexts: QueueContexts, context: QueueContext, duty: str) -> int:
    """Let a thread relay while somebody receives; returns when to ask for it again, in microseconds."""
    name = topic_of_duty(duty)
    if name is not None and contexts.outside is None:
        background_of(contexts, name).get().serve_for(_SERVED_SECONDS)
    return context.store.now() + microseconds(_AGAIN_SECONDS)
