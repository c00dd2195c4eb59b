"""Topics as sinks, and their subscriptions as sources."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shardq.client import connect
from shardq.spark.options import QueueOptions
from shardq.topics.names import log_of

__all__ = ["located"]

Options = TypeVar("Options", bound=QueueOptions)


def located(options: Options) -> Options:
    """Return the options with the queue of the subscription that they name, or with the log of the topic, if any.

    Raises TopicNotFound or SubscriptionNotFound. The queue is looked up for each use: it has another name when the
    subscription was deleted and made again.
    """
    if options.topic is None:
        return options
    with connect(options.url, retry_seconds=options.retry_seconds) as client:
        topic = client.topic(options.topic)
        if options.subscription is None:
            queue = log_of(topic.name)
        else:
            queue = topic.subscription(options.subscription).queue.name
    return msgspec.structs.replace(options, queue=queue)
