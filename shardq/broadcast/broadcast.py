"""Sending to all current listeners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardq.base.codec import BYTES, Codec, check_codec
from shardq.base.outgoing_message import HeaderValue
from shardq.base.shard import check_queue_name
from shardq.broadcast.subscription import Subscription, live_queues
from shardq.client import Client, check_client
from shardq.core.sending.prepared import check_bodies
from shardq.core.settings import check_number
from shardq.errors import InvalidName, PartialSend, QueueNotFound

__all__ = ["Broadcast"]

KEEP_SECONDS = 300.0
LONGEST_NAME = 120  # what the queues of subscribers add is at most 60


class Broadcast:
    """Sends each message to all current subscribers, each of which has its own copy.

    Clients that are not subscribed do not get it, now or later. A copy is delivered at least once while its subscriber
    lives. Safe for threads.

    >>> news = Broadcast(shardq.connect(url), "news")
    >>> with news.subscribe() as one, news.subscribe() as other:
    ...     news.publish(b"rain")
    ...     one.receive().bodies, other.receive().bodies
    2
    ([b'rain'], [b'rain'])
    >>> news.publish(b"sun")
    0
    """

    def __init__(self, client: Client, name: str, *, codec: Codec = BYTES) -> None:
        check_client(client)
        self.name, self._client, self._codec = _check_name(name), client, check_codec(codec)

    def publish(
        self, body: Any, *, headers: Mapping[str, HeaderValue] | None = None, ttl: float | None = None
    ) -> int:
        """Send to all subscribers; returns how many there are.

        Raises the errors of :meth:`shardq.Producer.send`; some subscribers may have the message then.
        """
        return self.publish_many([body], headers=headers, ttl=ttl)

    def publish_many(
        self,
        bodies: Iterable[Any],
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        ttl: float | None = None,
    ) -> int:
        """Send several messages to all subscribers, in bundles; returns how many there are."""
        check_bodies(bodies, "publish one body with `publish`")
        subscribers, listed = 0, list(bodies)
        for name in live_queues(self._client, self.name):
            try:
                with self._client.queue(name).producer(codec=self._codec) as producer:
                    producer.send_many(listed, headers=headers, ttl=ttl)
            except QueueNotFound:  # not subscribed yet, or no longer
                continue
            except PartialSend:
                if self._client.exists(name):
                    raise
                continue
            subscribers += 1
        return subscribers

    def subscribe(self, *, keep: float = KEEP_SECONDS) -> Subscription:
        """Receive messages that are published from now on, until the subscription is closed or this process dies.

        A message that was not received within ``keep`` seconds, 30 at least, is dropped. After twice that nothing is
        left of a subscriber that died, if others of this broadcast live. Raises InvalidSetting.
        """
        check_number("keep", keep, 30.0, 86_400.0)
        return Subscription(self._client, self.name, codec=self._codec, keep=keep)


def _check_name(name: str) -> str:
    name = check_queue_name(name)
    if len(name) > LONGEST_NAME:
        raise InvalidName(
            f"broadcast {name[:20]!r}... has {len(name)} characters: use at most {LONGEST_NAME}"
        )
    return name
