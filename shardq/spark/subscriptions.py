"""Subscriptions of topics as sources."""

from __future__ import annotations

from collections.abc import Mapping

from shardq.client import connect
from shardq.errors import InvalidSetting

__all__ = ["with_queue"]


def with_queue(given: Mapping[str, str]) -> dict[str, str]:
    """The options with the queue of the subscription that they name, if any.

    Raises InvalidSetting, TopicNotFound or SubscriptionNotFound. The queue is looked up for each use: it has another
    name when the subscription was deleted and made again.
    """
    lower = {name.lower(): value for name, value in given.items()}
    if "subscription" not in lower:
        return dict(given)
    if "topic" not in lower:
        raise InvalidSetting("option 'topic' is missing: give .option('topic', ...) beside 'subscription'")
    if "queue" in lower:
        raise InvalidSetting("options 'queue' and 'subscription' are both given: leave one of them out")
    if "url" not in lower:
        raise InvalidSetting("option 'url' is missing: give .option('url', ...)")
    with connect(lower["url"]) as client:
        queue = client.topic(lower.pop("topic")).subscription(lower.pop("subscription")).queue.name
    return lower | {"queue": queue}
