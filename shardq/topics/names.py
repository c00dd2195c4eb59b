"""The names of topics and of the queues that they are made of, and their errors.

A topic ``orders`` is the queue ``_shardq/topics/orders/log``: it exists while that one does. Beside it are
``.../orders/state`` and, for each subscription, ``.../orders/<subscription>/<incarnation>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from shardq.base.shard import TOPICS_FOLDER
from shardq.base.texts import plain, shown
from shardq.errors import InvalidName, InvalidSetting, QueueExists, QueueNotFound

__all__ = [
    "InvalidFilter",
    "SubscriptionExists",
    "SubscriptionNotFound",
    "TopicExists",
    "TopicNotFound",
    "check_name",
    "folder_of",
    "is_of_subscription",
    "job_of",
    "log_of",
    "queue_of",
    "state_of",
    "topic_in",
    "topic_of_job",
    "worked_queues",
]

_LONGEST = 64
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST - 1}}}")
_SUBSCRIPTION = re.compile(rf"{TOPICS_FOLDER}[^/]+/[^/]+/[^/]+")


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


_LOG, _DUTY = re.compile(rf"{TOPICS_FOLDER}([^/]+)/log"), re.compile(rf"{TOPICS_FOLDER}([^/]+)/relay")


def check_name(what: str, name: object) -> str:
    """Return the name of a topic or a subscription; raises InvalidName when it cannot be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"{what} {shown(name)} cannot be used: give a str of 1 to {_LONGEST} letters, digits, '.', '_' and '-', "
            "first a letter or digit"
        )
    return plain(name)


def folder_of(topic: str = "", subscription: str = "") -> str:
    """Return how the names of all queues of a topic, or of a subscription, begin. Without a topic: of all topics."""
    return TOPICS_FOLDER + "".join(f"{part}/" for part in (topic, subscription) if part)


def log_of(topic: str) -> str:
    """Return the queue to which messages are published, and whose history keeps them."""
    return f"{folder_of(topic)}log"


def state_of(topic: str) -> str:
    """Return the queue of the one message that lists the subscriptions."""
    return f"{folder_of(topic)}state"


def queue_of(topic: str, subscription: str, incarnation: str) -> str:
    """Return the queue of a subscription."""
    return f"{folder_of(topic, subscription)}{incarnation}"


def is_of_subscription(queue: str) -> bool:
    """Return True for the queue of a subscription, and for that of its dead letters."""
    return _SUBSCRIPTION.fullmatch(queue) is not None


def worked_queues(
    listing: Callable[[str], Iterable[str]], prefix: str = "", *, logs: bool = False
) -> list[str]:
    """Return the queues that consumers work on, by a function that lists queues by their prefix.

    Those of subscriptions are among them unless a prefix limits them; with ``logs`` those of topics, too.
    """
    of_topics = () if prefix else listing(folder_of())
    return [
        *listing(prefix),
        *(name for name in of_topics if is_of_subscription(name) or (logs and topic_in(name) is not None)),
    ]


def topic_in(queue: str) -> str | None:
    """Return the topic whose log a queue is; None for other queues."""
    found = _LOG.fullmatch(queue)
    return found.group(1) if found else None


def job_of(topic: str) -> str:
    """Return the background job of a subscription's consumers: relaying the topic. No record has this name."""
    return f"{folder_of(topic)}relay"


def topic_of_job(job: str) -> str | None:
    """Return the topic that is to be relayed; None where the background job is another one."""
    found = _DUTY.fullmatch(job)
    return found.group(1) if found else None
