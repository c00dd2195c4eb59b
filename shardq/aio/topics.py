"""Topics, their subscriptions, and schedules with asyncio."""

from __future__ import annotations

from typing import Any, Unpack

import shardq.schedules
import shardq.topics
from shardq.aio.consumer import Consumer
from shardq.aio.queue import Queue
from shardq.aio.threads import Wraps, awaited, passed
from shardq.core.settings import QueueSettingsArguments
from shardq.topics.filters import Filter, FilterLike
from shardq.topics.subscription import Start

__all__ = ["Schedules", "Subscription", "Topic"]


class Topic(Wraps[shardq.topics.Topic]):
    """A topic, as :class:`shardq.topics.Topic`: each of its subscriptions gets a copy of each message."""

    name = passed[str]()
    """The topic's name."""

    async def retention(self) -> float:
        """Return the seconds for which messages that were relayed can be read again. Raises TopicNotFound."""
        return await self._threads.run(lambda: self._sync.retention)

    alter = awaited(shardq.topics.Topic.alter)
    publish = awaited(shardq.topics.Topic.publish)
    publish_many = awaited(shardq.topics.Topic.publish_many)
    subscriptions = awaited(shardq.topics.Topic.subscriptions)
    relay = awaited(shardq.topics.Topic.relay)

    async def subscribe(
        self,
        name: str,
        *,
        filter: FilterLike | None = None,  # noqa: A002 - as in the sync client
        start: Start = "latest",
        **settings: Unpack[QueueSettingsArguments],
    ) -> Subscription:
        """Make a durable subscription, or open the one of that name, as :meth:`shardq.topics.Topic.subscribe` does."""
        sync = await self._threads.run(
            lambda: self._sync.subscribe(name, filter=filter, start=start, **settings)
        )
        return Subscription(sync, self._threads)

    async def subscription(self, name: str) -> Subscription:
        """Return an existing subscription. Raises SubscriptionNotFound or TopicNotFound."""
        return Subscription(await self._threads.run(self._sync.subscription, name), self._threads)


class Subscription(Wraps[shardq.topics.Subscription]):
    """A durable, named subscription of a topic, as :class:`shardq.topics.Subscription`."""

    name = passed[str]()
    """The subscription's name."""
    topic = passed[str]()
    """The name of its topic."""
    filter = passed[Filter]()
    """Which messages it takes."""

    @property
    def queue(self) -> Queue:
        """The queue with its messages."""
        return Queue(self._sync.queue, self._threads)

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer of its messages, with the options of :meth:`shardq.aio.Queue.consumer`."""
        return self.queue.consumer(**options)

    state = awaited(shardq.topics.Subscription.state)
    seek = awaited(shardq.topics.Subscription.seek)
    delete = awaited(shardq.topics.Subscription.delete)


class Schedules(Wraps[shardq.schedules.Schedules]):
    """The schedules of a store, as :class:`shardq.schedules.Schedules`: ``client.schedules``."""

    create = awaited(shardq.schedules.Schedules.create)
    get = awaited(shardq.schedules.Schedules.get)
    list = awaited(shardq.schedules.Schedules.list)
    pause = awaited(shardq.schedules.Schedules.pause)
    resume = awaited(shardq.schedules.Schedules.resume)
    trigger = awaited(shardq.schedules.Schedules.trigger)

    async def alter(self, id: str, **changes: Any) -> shardq.schedules.Schedule:  # noqa: A002 - as in the sync client
        """Change a schedule, as :meth:`shardq.schedules.Schedules.alter` does."""
        return await self._threads.run(lambda: self._sync.alter(id, **changes))

    delete = awaited(shardq.schedules.Schedules.delete)
