"""The names of queues in traces: a queue of a topic has the name of its topic."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from shardq.base.shard import INTERNAL
from shardq.topics.names import folder_of, is_of_subscription, topic_in

__all__ = ["Destination", "destination_of"]


class Destination(msgspec.Struct, frozen=True):
    """A queue, a topic, a subscription of a topic, or a broadcast."""

    name: str
    subscription: str | None = None
    temporary: bool = False  # the queue of one subscriber of a broadcast


_LIVE = re.compile(
    r"(.+)\.live/[0-9a-f]{32}-[0-9]+-[0-9]+"
)  # as broadcasts call the queues of their subscribers


@lru_cache(maxsize=4096)
def destination_of(queue: str, operation: str) -> Destination | None:
    """Return what an operation on a queue is about; None for what shardq does for itself."""
    if not queue.startswith(INTERNAL):
        live = _LIVE.fullmatch(queue)
        return Destination(queue) if live is None else Destination(live[1], temporary=True)
    topic = topic_in(queue)
    if topic is not None:
        return Destination(topic) if operation == "send" else None  # the rest is done by its relay
    if is_of_subscription(queue):
        topic, subscription, _ = queue.removeprefix(folder_of()).split("/")
        return Destination(topic, subscription)
    return None
