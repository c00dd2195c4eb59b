"""The names of spans, attributes and metrics, by the semantic conventions for messaging, version 1.45.

They are in development. ``OTEL_SEMCONV_STABILITY_OPT_IN`` chooses between them and older ones; shardq never had older
ones, so every value of it means these. In traces a queue of a topic has the name of its topic.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from shardq.base.shard import INTERNAL
from shardq.topics.names import folder_of, is_of_subscription, topic_in

__all__ = [
    "BATCH_COUNT",
    "BODY_SIZE",
    "BUCKETS",
    "CONSUMED_MESSAGES",
    "DELIVERIES",
    "DESTINATION",
    "ERROR_TYPE",
    "GROUP",
    "MESSAGE_ID",
    "OPERATION_DURATION",
    "OPERATION_NAME",
    "OPERATION_TYPE",
    "OPERATION_TYPES",
    "OUTCOME",
    "PARTITION",
    "PROCESS_DURATION",
    "SCHEMA_URL",
    "SENT_MESSAGES",
    "SUBSCRIPTION",
    "SYSTEM",
    "SYSTEM_NAME",
    "TASK",
    "TEMPORARY",
    "Destination",
    "destination_of",
    "span_name",
]


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


SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.45.0"
SYSTEM_NAME: Final = "shardq"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
SUBSCRIPTION: Final = "messaging.destination.subscription.name"
TEMPORARY: Final = "messaging.destination.temporary"
PARTITION: Final = "messaging.destination.partition.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
ERROR_TYPE: Final = "error.type"

DELIVERIES: Final = "messaging.shardq.message.deliveries"
GROUP: Final = "messaging.shardq.message.group"
TASK: Final = "messaging.shardq.task.name"
OUTCOME: Final = "messaging.shardq.outcome"

OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Of the durations, in seconds."""

OPERATION_TYPES: Final = {"send": "send", "receive": "receive", "process": "process"}
"""The types of operations, by the name of each. All others settle messages."""


def span_name(operation: str, destination: str) -> str:
    """Return the name of a span: the operation, and the queue or topic."""
    return f"{operation} {destination}"
