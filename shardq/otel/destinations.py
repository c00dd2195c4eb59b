"""What a queue is called in traces: queues of topics are called by their topics, and others of shardq's own are not."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from shardq.base.shard import INTERNAL
from shardq.topics.names import folder_of, is_of_subscription, topic_in

__all__ = ["Destination", "destination_of"]


class Destination(msgspec.Struct, frozen=True):
    """A queue, a topic, or a subscription of a topic."""

    name: str
    subscription: str | None = None


@lru_cache(maxsize=4096)
def destination_of(queue: str, operation: str) -> Destination | None:
    """Return what an operation on a queue is about; None for what shardq does for itself."""
    if not queue.startswith(INTERNAL):
        return Destination(queue)
    topic = topic_in(queue)
    if topic is not None:
        return Destination(topic) if operation == "send" else None  # the rest is done by its relay
    if is_of_subscription(queue):
        topic, subscription, _ = queue.removeprefix(folder_of()).split("/")
        return Destination(topic, subscription)
    return None
