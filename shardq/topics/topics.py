"""The topics of a store: creating, listing and deleting them."""

from __future__ import annotations

from shardq.client import Client
from shardq.codec import BYTES, Codec, check_codec
from shardq.errors import QueueExists
from shardq.settings import check_number, warn_of_differences
from shardq.storage.writing import telling_done
from shardq.topics.envelopes import MOST_BYTES
from shardq.topics.errors import TopicExists
from shardq.topics.leftovers import drop_leftovers, drop_topic
from shardq.topics.names import check_name, folder_of, log_of, topic_in
from shardq.topics.topic import Topic

__all__ = ["RETENTION_SECONDS", "create_topic", "delete_topic", "topics"]

RETENTION_SECONDS = 86_400.0

_LONGEST_RETENTION_SECONDS = 10 * 366 * 86_400.0
_LOG_BYTES = 2 * MOST_BYTES  # an envelope, with what it takes besides its messages


def create_topic(
    client: Client, name: str, *, retention: float, exist_ok: bool, codec: Codec = BYTES
) -> Topic:
    """See :meth:`shardq.Client.create_topic`."""
    name = check_name("topic", name)
    check_number("retention", retention, 0.0, _LONGEST_RETENTION_SECONDS)
    check_codec(codec)
    client.create_schema()
    existed = client.exists(log_of(name))
    if not existed:
        drop_leftovers(client, name)
    if existed and exist_ok:
        topic = Topic(client, name, codec=codec)
        kept, given = {"retention": topic.retention}, {"retention": float(retention)}
        warn_of_differences(f"topic {name!r}", kept, given, "`topic.alter` changes it")
        return topic
    try:
        client.create_queue(
            log_of(name),
            exist_ok=exist_ok,
            shards=2,
            time_shards=4,
            max_deliveries=None,
            history_retention=retention,
            max_message_bytes=_LOG_BYTES,
        )
    except QueueExists as error:
        raise TopicExists(
            f"topic {name!r} exists already: open it, accept it with exist_ok, or delete it first"
        ) from error
    with telling_done(lambda: f"topic {name!r} is created: call it again with exist_ok=True"):
        return Topic(client, name, codec=codec)


def topics(client: Client) -> tuple[str, ...]:
    """See :meth:`shardq.Client.topics`."""
    return tuple(sorted(name for queue in client.queues(folder_of()) if (name := topic_in(queue))))


def delete_topic(client: Client, name: str) -> None:
    """See :meth:`shardq.Client.delete_topic`."""
    drop_topic(client, check_name("topic", name))
