"""Endpoints of queues: what they hold, by queue and by shard, who consumes them, and what changes them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from shardq import ConsumerState, ShardState
from shardq.base.shard import INTERNAL
from shardq.base.texts import many
from shardq.core.settings import check_setting_name
from shardq.errors import InvalidSetting
from shardq.service.messages import page_of, pages_of
from shardq.service.parameters import (
    Confirmed,
    CreateQueue,
    Evict,
    ListConsumers,
    ListQueues,
    Nothing,
    Pause,
    Settings,
    Shards,
)
from shardq.service.store_access import StoreAccess, gathered
from shardq.service.views import (
    Changed,
    ConsumersView,
    ConsumerView,
    OverviewView,
    QueueDetail,
    QueueRow,
    QueuesView,
    ShardsView,
    ShardView,
)

__all__ = [
    "alter_queue",
    "create_queue",
    "delete_queue",
    "evict",
    "list_all_consumers",
    "list_consumers",
    "list_queues",
    "overview",
    "pause",
    "purge",
    "resume",
    "show_queue",
    "show_shards",
    "sweep",
]

PAINT_SECONDS = 0.1
"""For which a page waits for counts that are not known yet."""

LATE_SECONDS = 300.0
_MOST_WITH_CONSUMERS = 200  # queues whose consumers are listed at once
_BUSIEST = 10

_SORTS: Mapping[str, Callable[[QueueRow], Any]] = {
    "ready": lambda row: -row.ready,
    "in_flight": lambda row: -row.in_flight,
    "delayed": lambda row: -row.delayed,
    "dead": lambda row: -(row.dead or 0),
    "age": lambda row: row.oldest or datetime.max.replace(tzinfo=UTC),
    "consumers": lambda row: -row.consumers,
}


async def overview(access: StoreAccess, _name: str, _given: Nothing) -> OverviewView:
    """Return all queues together, as far as they are counted yet."""
    names = access.seen(await access.store.names())
    rows = list((await access.counted(names, PAINT_SECONDS)).values())
    dead_queues = {row.dead_letter_queue for row in rows}
    own = [row for row in rows if row.name not in dead_queues]  # whose letters are counted as dead
    return OverviewView(
        queues=len(names),
        counted=len(rows),
        counted_at=access.store.survey.ended_at,
        ready=sum(row.ready for row in own),
        delayed=sum(row.delayed for row in own),
        in_flight=sum(row.in_flight for row in own),
        dead=sum(row.backlog for row in rows if row.name in dead_queues),
        consumers=sum(row.consumers for row in own),
        late_seconds=max((row.late_seconds for row in own), default=0.0),
        busiest=sorted(own, key=lambda row: (-row.backlog, row.name))[:_BUSIEST],
        attention=[text for row in own for text in _attention(row)][:20],
    )


def _attention(row: QueueRow) -> Sequence[str]:
    found = []
    if row.error is not None:
        found.append(f"{row.name} could not be read: {row.error}")
    if row.delivery_paused:
        found.append(f"{row.name}: deliveries are paused")
    if row.sends_paused:
        found.append(f"{row.name}: sends are paused")
    if row.dead:
        found.append(f"{row.name}: {many(row.dead, 'dead letter')}")
    if row.late_seconds > LATE_SECONDS and not row.delivery_paused:
        found.append(f"{row.name}: a message has been due for {row.late_seconds / 60:,.0f} minutes")
    return found


async def list_queues(access: StoreAccess, _name: str, given: ListQueues) -> QueuesView:
    """Return a page of the queues whose names contain a text."""
    words = given.search.casefold()
    names = [name for name in access.seen(await access.store.names()) if words in name.casefold()]
    known: Mapping[str, QueueRow] = {}
    if given.sort != "name" or not given.exact:
        known = await access.counted(names, PAINT_SECONDS)
        if given.sort != "name":
            counted = sorted(known.values(), key=lambda row: (_SORTS[given.sort](row), row.name))
            names = [*(row.name for row in counted), *(name for name in names if name not in known)]
    page = page_of(names, given.page, given.size)
    if given.exact:
        known = await access.rows(page)
        page = [name for name in page if name in known]
    return QueuesView(
        queues=[known.get(name) or QueueRow(name=name, error="not counted yet") for name in page],
        total=len(names),
        page=given.page,
        pages=pages_of(len(names), given.size),
        counted=len(known),
        counted_at=None if given.exact else access.store.survey.ended_at,
    )


async def show_queue(access: StoreAccess, name: str, _given: Nothing) -> QueueDetail:
    """Return a queue with its counts and settings."""
    row, settings = await asyncio.gather(access.row(name), access.store.settings(name))
    if settings.dead_letter_queue != row.dead_letter_queue:  # the key does not see it
        settings = msgspec.structs.replace(settings, dead_letter_queue=None)
    return QueueDetail(queue=row, settings=msgspec.to_builtins(settings))


async def create_queue(access: StoreAccess, _name: str, given: CreateQueue) -> QueueDetail:
    """Create a queue with its dead-letter queue."""
    access.check("manage", given.name)
    _check_is_no_subscription(given.name)
    await access.client.create_queue(given.name, **_settings(access, given.settings))
    return await _changed(access, given.name)


async def alter_queue(access: StoreAccess, name: str, given: Settings) -> QueueDetail:
    """Change settings of a queue in use."""
    await (await access.client.queue(name)).alter(**_settings(access, given.settings))
    return await _changed(access, name)


def _settings(access: StoreAccess, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a key may make. Its messages go to no dead-letter queue that it does not see."""
    for name in given:  # each is an argument of a call, which has others
        check_setting_name(name)
    dead = given.get("dead_letter_queue")
    if dead is not None and not isinstance(dead, str):
        raise InvalidSetting("dead_letter_queue: give the name of a queue")
    if dead is not None:
        access.check("manage", dead)
        _check_is_no_subscription(dead)
    return dict(given)


async def _changed(access: StoreAccess, name: str) -> QueueDetail:
    access.store.forget()
    return await show_queue(access, name, Nothing())


async def delete_queue(access: StoreAccess, name: str, given: Confirmed) -> Changed:
    """Delete a queue with all its messages."""
    _check_confirmed(name, given)
    _check_is_no_subscription(name)
    await access.client.delete_queue(name)
    return Changed(changed=1)


def _check_is_no_subscription(name: str) -> None:
    if name.startswith(INTERNAL):  # its topic has to know of it
        raise InvalidSetting(
            f"queue {name!r} is that of a subscription: `shardq subscription create` and `shardq subscription delete` "
            "change those"
        )


async def purge(access: StoreAccess, name: str, given: Confirmed) -> Changed:
    """Remove all messages of a queue, those in flight too."""
    _check_confirmed(name, given)
    return Changed(changed=await (await access.client.queue(name)).purge())


def _check_confirmed(name: str, given: Confirmed) -> None:
    if given.confirm != name:
        raise InvalidSetting(
            f"confirm: type the name of the queue, {name}, to confirm that this cannot be undone"
        )


async def pause(access: StoreAccess, name: str, given: Pause) -> QueueDetail:
    """Stop deliveries, sends or both."""
    await (await access.client.queue(name)).pause(delivery=given.delivery, sends=given.sends)
    return await _changed(access, name)


async def resume(access: StoreAccess, name: str, _given: Nothing) -> QueueDetail:
    """Allow deliveries and sends again."""
    await (await access.client.queue(name)).resume()
    return await _changed(access, name)


async def sweep(access: StoreAccess, name: str, _given: Nothing) -> Changed:
    """Remove leftovers and what has expired."""
    return Changed(changed=await (await access.client.queue(name)).sweep())


async def show_shards(access: StoreAccess, name: str, given: Shards) -> ShardsView:
    """Return the shards of a queue that are in use, by depth or age."""

    async def read() -> Sequence[ShardState]:
        return await (await access.client.queue(name)).shard_states()

    settings = await access.store.settings(name)
    states = await access.store.shared.read(("shards", name), read)
    now = await access.client.now()
    weights = [_weight(state, given.by, now) for state in states]
    largest = max(weights, default=0.0)
    return ShardsView(
        queue=name,
        by=given.by,
        shards=settings.shards,
        time_shards=settings.time_shards,
        time_shard_seconds=settings.time_shard_seconds,
        written=settings.layout.time_shard(int(now.timestamp() * 1_000_000)),
        states=[
            ShardView(
                time_shard=state.shard.time_shard,
                shard=state.shard.number,
                grouped=state.shard.is_grouped,
                ready=state.counts.ready,
                delayed=state.counts.delayed,
                in_flight=state.counts.in_flight,
                oldest=state.counts.oldest,
                level=_level(weight, largest),
            )
            for state, weight in zip(states, weights, strict=True)
        ],
    )


def _weight(state: ShardState, by: str, now: datetime) -> float:
    counts = state.counts
    if by == "depth":
        return float(counts.backlog)
    return 0.0 if counts.oldest is None else max(1.0, (now - counts.oldest).total_seconds())


def _level(weight: float, largest: float) -> int:
    """Return 0 for nothing, else 1 to 9: equal factors are equal steps, and the largest is 9."""
    return 0 if weight <= 0 else 1 + round(8 * math.log1p(weight) / math.log1p(largest))


async def list_consumers(access: StoreAccess, name: str, _given: Nothing) -> ConsumersView:
    """Return the consumers of a queue, and what each of them holds."""
    found = await access.store.shared.read(("consumers", name), partial(_consumers_of, access, name))
    return ConsumersView(consumers=[_consumer(name, each) for each in found], queues=1, total=1)


async def _consumers_of(access: StoreAccess, name: str) -> Sequence[ConsumerState]:
    return await (await access.client.queue(name)).consumers()


async def list_all_consumers(access: StoreAccess, _name: str, given: ListConsumers) -> ConsumersView:
    """Return the consumers of the queues whose names contain a text, of the first 200 of them."""
    words = given.search.casefold()
    names = [name for name in access.seen(await access.store.names()) if words in name.casefold()]
    read = names[:_MOST_WITH_CONSUMERS]
    views = await gathered(list_consumers(access, name, Nothing()) for name in read)
    consumers = sorted(
        (each for view in views for each in view.consumers),
        key=lambda each: (-each.held, each.name or each.id),
    )
    return ConsumersView(consumers=consumers, queues=len(read), total=len(names))


def _consumer(queue: str, state: ConsumerState) -> ConsumerView:
    return ConsumerView(queue=queue, **msgspec.structs.asdict(state))


async def evict(access: StoreAccess, name: str, given: Evict) -> Changed:
    """Release the messages that a dead consumer holds."""
    return Changed(changed=await (await access.client.queue(name)).evict(given.consumer, force=given.force))
