"""Topics: messages for any number of durable subscriptions."""

from __future__ import annotations

from shardq.topics.envelopes import TopicMessage
from shardq.topics.filters import Filter
from shardq.topics.names import (
    InvalidFilter,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
)
from shardq.topics.subscription import Subscription, SubscriptionState
from shardq.topics.topic import Topic

__all__ = [
    "Filter",
    "InvalidFilter",
    "Subscription",
    "SubscriptionExists",
    "SubscriptionNotFound",
    "SubscriptionState",
    "Topic",
    "TopicExists",
    "TopicMessage",
    "TopicNotFound",
]
