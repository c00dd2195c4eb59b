"""Errors of topics and subscriptions. Their tree is in :mod:`shardq.errors`."""

from __future__ import annotations

from shardq.errors import InvalidSetting, QueueExists, QueueNotFound

__all__ = ["InvalidFilter", "SubscriptionExists", "SubscriptionNotFound", "TopicExists", "TopicNotFound"]


class TopicExists(QueueExists):
    """Raised when a topic is created whose name another topic has."""


class TopicNotFound(QueueNotFound):
    """Raised when a topic does not exist, or no longer."""


class SubscriptionExists(QueueExists):
    """Raised when a subscription is opened with another filter than it has."""


class SubscriptionNotFound(QueueNotFound):
    """Raised when a topic has no subscription of that name."""


class InvalidFilter(InvalidSetting):
    """Raised when a subscription cannot have a filter: a pattern or a condition is malformed."""
