"""The topics of a store: creating, listing and deleting them."""

from __future__ import annotations

from shardq.base.codec import BYTES, Codec, check_codec
from shardq.core.context.queue_context import QueueContexts
from shardq.core.queue_lifecycle import create_queue
from shardq.core.settings import QueueSettingsArguments, check_number, warn_of_differences
from shardq.errors import QueueExists
from shardq.storage.writing import reporting_done
from shardq.topics.envelopes import MOST_BYTES
from shardq.topics.leftovers import drop_leftovers, drop_topic
from shardq.topics.names import TopicExists, check_name, folder_of, log_of, topic_in
from shardq.topics.topic import Topic

__all__ = ["create_topic", "delete_topic", "topics"]

_RETENTION_SECONDS = 86_400.0
_LONGEST_RETENTION_SECONDS = 10 * 366 * 86_400.0
_LOG_BYTES = 2 * MOST_BYTES  # an envelope, with what it takes besides its messages


def create_topic(
    contexts: QueueContexts, name: str, *, retention: float | None, exist_ok: bool, codec: Codec = BYTES
) -> Topic:
    """See :meth:`shardq.Client.create_topic`."""
    name = check_name("topic", name)
    chosen = _RETENTION_SECONDS if retention is None else retention
    check_number("retention", chosen, 0.0, _LONGEST_RETENTION_SECONDS)
    check_codec(codec)
    contexts.retry(contexts.store.create_schema)
    existed = contexts.exists(log_of(name))
    if not existed:
        drop_leftovers(contexts, name)
    if existed and exist_ok:
        topic = Topic(contexts, name, codec=codec)
        if retention is not None:
            kept, given = {"retention": topic.retention}, {"retention": float(retention)}
            warn_of_differences(f"topic {name!r}", kept, given, "`topic.alter` changes it")
        return topic
    try:
        settings: QueueSettingsArguments = {
            "shards": 2,
            "time_shards": 4,
            "max_deliveries": None,
            "history_retention": chosen,
            "max_message_bytes": _LOG_BYTES,
        }
        create_queue(contexts, log_of(name), settings, exist_ok=exist_ok)
    except QueueExists as error:
        raise TopicExists(
            f"topic {name!r} exists already: open it, accept it with exist_ok, or delete it first"
        ) from error
    with reporting_done(lambda: f"topic {name!r} is created: call it again with exist_ok=True"):
        return Topic(contexts, name, codec=codec)


def topics(contexts: QueueContexts) -> tuple[str, ...]:
    """See :meth:`shardq.Client.topics`."""
    return tuple(sorted(name for queue in contexts.names(folder_of()) if (name := topic_in(queue))))


def delete_topic(contexts: QueueContexts, name: str) -> None:
    """See :meth:`shardq.Client.delete_topic`."""
    drop_topic(contexts, check_name("topic", name))
