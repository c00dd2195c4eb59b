"""Endpoints of the history of queues, which the charts of pages read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec

from shardq.history import History, read_histories
from shardq.service.store_access import Forbidden, StoreAccess

__all__ = ["ListHistories", "Range", "list_histories", "show_history", "show_total_history"]

MOST_QUEUES = 50


class Range(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last ``since`` seconds, in at most ``points`` steps and one that has just begun."""

    since: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 3_600.0
    points: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 240


class ListHistories(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names of up to 50 queues, separated by commas, and the time."""

    queues: Annotated[str, msgspec.Meta(min_length=1, max_length=8_000)]
    since: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 3_600.0
    points: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 60


class HistoriesView(msgspec.Struct, frozen=True, kw_only=True):
    """The histories of some queues."""

    histories: list[History]


async def show_total_history(access: StoreAccess, _name: str, given: Range) -> History:
    """Return the history of all queues together. The key has to see all of them."""
    names = await access.store.names()
    if len(access.seen(names)) < len(names):
        raise Forbidden(f"the key {access.grant.name!r} does not see all queues: ask for the history of each")
    return (await _read(access, [None], given.since, given.points))[0]


async def show_history(access: StoreAccess, name: str, given: Range) -> History:
    """Return the history of a queue: numbers of messages, rates, and how long messages waited and were worked on."""
    await access.store.settings(name)  # which raises QueueNotFound
    return (await _read(access, [name], given.since, given.points))[0]


async def list_histories(access: StoreAccess, _name: str, given: ListHistories) -> HistoriesView:
    """Return the histories of some queues. Those that do not exist have none."""
    names = list(dict.fromkeys(given.queues.split(",")))[:MOST_QUEUES]
    for name in names:
        access.check("read", name)
    return HistoriesView(histories=await _read(access, names, given.since, given.points))


async def _read(access: StoreAccess, names: Sequence[str | None], since: float, points: int) -> list[History]:
    """Read histories, or return those that were read since the last sample may have been taken."""

    def read() -> list[History]:
        return read_histories(access.store.sync, names, since=since, points=points)

    key = (tuple(names), since, points)
    return await access.store.histories.read(key, lambda: asyncio.to_thread(read))
