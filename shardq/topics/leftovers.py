"""Deleting the queues of a topic, also while others use it, and the leftovers of a broken-off deletion.

A topic exists while its log does. So queues without a log are of a topic that was deleted. Each queue is dropped as it
was found, so that one that is made anew meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from shardq.core.context.queue_context import QueueContexts
from shardq.core.limits.queue_limits import drop_permits
from shardq.core.queue_lifecycle import delete_queue
from shardq.errors import OutcomeUnknown, QueueNotFound, StoreUnavailable
from shardq.storage.requests import QueueRecord
from shardq.storage.writing import reporting_done
from shardq.topics.names import TopicNotFound, folder_of, log_of

__all__ = ["drop_leftovers", "drop_subscription", "drop_topic", "drop_unnamed"]


def drop_topic(contexts: QueueContexts, topic: str) -> None:
    """Delete a topic with its subscriptions. Raises TopicNotFound."""
    found = _queues(contexts, topic)
    try:
        delete_queue(contexts, log_of(topic))
    except QueueNotFound as error:
        drop_leftovers(contexts, topic)
        raise TopicNotFound(
            f"topic {topic!r} does not exist: `shardq topic list` shows those that do"
        ) from error
    with reporting_done(
        lambda: f"topic {topic!r} is deleted, but not all that belonged to it: repeat the call"
    ):
        _drop(contexts, found)
        drop_leftovers(contexts, topic)  # what was made meanwhile


def drop_leftovers(contexts: QueueContexts, topic: str) -> None:
    """Delete the leftovers of a topic that was deleted; nothing if it exists."""
    found = _queues(contexts, topic)
    if not contexts.exists(log_of(topic)):
        _drop(contexts, found)


def drop_subscription(contexts: QueueContexts, queue: str) -> None:
    """Delete a subscription's queue and its dead letters."""
    deleted = False
    remedy = f"queue {queue!r} is deleted, but maybe not its dead letters: repeat the call"
    with reporting_done(lambda: remedy if deleted else ""):
        for name in (queue, *(name for name in contexts.names(queue) if name != queue)):
            with suppress(QueueNotFound):
                delete_queue(contexts, name)
                deleted = True


def drop_unnamed(
    contexts: QueueContexts, topic: str, subscription: str, named: Callable[[], str | None]
) -> None:
    """Delete the queues of a subscription's name that broken-off calls have left.

    ``named`` returns the incarnation that the topic's state names. It is called after the queues were read, and each
    is dropped only as it was found. A caller that makes a subscription replaces the record of its queue after the
    state names it. Beside a queue that stays, its dead letters stay. Queues that cannot be dropped now are found by
    the next call.
    """
    with suppress(OutcomeUnknown, StoreUnavailable):
        found = _records(contexts, contexts.names(folder_of(topic, subscription)))
        staying = {named()} if found else set()
        for record in found:
            incarnation = record.name.removeprefix(folder_of(topic, subscription)).partition(".")[0]
            if incarnation not in staying and not _drop(contexts, [record]):
                staying.add(incarnation)


def _queues(contexts: QueueContexts, topic: str) -> list[QueueRecord]:
    """Read the present queues of a topic, but for its log."""
    return _records(contexts, (name for name in contexts.names(folder_of(topic)) if name != log_of(topic)))


def _records(contexts: QueueContexts, names: Iterable[str]) -> list[QueueRecord]:
    records = (contexts.retry(contexts.store.load_queue, name) for name in names)
    return [record for record in records if record is not None]


def _drop(contexts: QueueContexts, records: list[QueueRecord]) -> bool:
    """Drop queues that are as they were found; False when one was not there, or is another one now."""
    dropped = True
    for record in records:
        answer = contexts.retry.ask(contexts.store.drop_queue, record.name, record)
        dropped = dropped and (answer.value or answer.after_unknown)
        contexts.forget(record.name)
        drop_permits(contexts.store, contexts.retry, record.name)
    return dropped
