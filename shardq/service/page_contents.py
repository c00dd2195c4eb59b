"""The contents of each page: the endpoints that it asks, and the arrangement of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from shardq.service import dead_letters, features, messages, queues
from shardq.service import parameters as given
from shardq.service.endpoints import ENDPOINTS, Endpoint
from shardq.service.views import ConsumersView, ConsumerView, ShardsView, ShardView, WorkflowDetail

__all__ = ["PAGES", "Content", "Page"]

Ask = Callable[..., Awaitable[Any]]
Content = dict[str, Any]

MOST_CELLS = 1_280
"""Of a heat map: each takes about 100 bytes of the page."""

MOST_COLUMNS = 128
_LARGEST = 10
_SURVEYED: Content = {"took": 0.0}
"""Of pages that show counts of the survey, which has its own pace: they may have waited for it."""
_BY_CALL = {endpoint.call: endpoint for endpoint in ENDPOINTS}


class Page(msgspec.Struct, frozen=True):
    """A page: its path, its template, and the function that asks endpoints for what it shows."""

    path: str
    template: str
    title: str
    given: type
    load: Callable[[Ask, str, Any], Awaitable[Content]]

    def endpoint(self, call: Any) -> Endpoint:
        """Return the endpoint of a function."""
        return _BY_CALL[call]


async def _overview(ask: Ask, _name: str, _wanted: Any) -> Content:
    return {"view": await ask(queues.overview), **_SURVEYED}


async def _queues(ask: Ask, _name: str, wanted: given.ListQueues) -> Content:
    view = await ask(queues.list_queues, given=msgspec.structs.replace(wanted, exact=False))
    return {"view": view, **_SURVEYED}


async def _queue(ask: Ask, name: str, wanted: given.Shards) -> Content:
    detail, shards, consumers = await asyncio.gather(
        ask(queues.show_queue, name),
        ask(queues.show_shards, name, wanted),
        ask(queues.list_consumers, name),
    )
    return {"view": detail, "shards": shards, "heat": heat_map(shards), "consumers": consumers.consumers}


class HeatRow(msgspec.Struct, frozen=True):
    """A row of the heat map: a time shard with its cells; None is a shard that holds nothing."""

    label: str
    written: bool
    cells: list[ShardView | None]


class HeatMap(msgspec.Struct, frozen=True):
    """Time shards by shards. ``hidden`` is how many shards are left out, ``dense`` whether cells show no numbers."""

    columns: int
    rows: list[HeatRow]
    groups: list[HeatRow]
    largest: list[ShardView]
    hidden: int
    dense: bool


def heat_map(view: ShardsView) -> HeatMap:
    """Return the shards as a table. Of very many only the time shards with messages are rows."""
    found = {(each.time_shard, each.shard): each for each in view.states if not each.grouped}
    times = {each.time_shard for each in found.values() if each.backlog} | {view.written}
    columns = max([view.shards, *(shard + 1 for (_, shard), each in found.items() if each.backlog)])
    width = min(columns, MOST_COLUMNS)
    most = MOST_CELLS // width
    if view.time_shards <= most:
        times |= set(range(view.time_shards))
    shown = sorted([view.written, *sorted(times - {view.written})[: most - 1]])
    rows = [
        HeatRow(str(time), time == view.written, [found.get((time, shard)) for shard in range(width)])
        for time in shown
    ]
    grouped = {each.shard: each for each in view.states if each.grouped}
    lanes: list[ShardView | None] = [grouped[shard] for shard in sorted(grouped)[:MOST_COLUMNS]]
    groups = [HeatRow("groups", False, lanes)] if lanes else []
    is_shown = {(time, shard) for time in shown for shard in range(width)}
    hidden = sum(1 for place, each in found.items() if place not in is_shown and each.backlog)
    hidden += sum(1 for shard in sorted(grouped)[MOST_COLUMNS:] if grouped[shard].backlog)
    largest = sorted(
        (each for each in view.states if each.backlog), key=lambda each: (-each.level, -each.backlog)
    )[:_LARGEST]
    return HeatMap(width, rows, groups, largest, hidden, dense=width > 24)


async def _messages(ask: Ask, name: str, wanted: given.ListMessages) -> Content:
    conditions = {field: getattr(wanted, field) for field in given.ScanFilter.__struct_fields__}
    plain = given.ScanFilter(scan=wanted.scan)
    some = given.ScanFilter(**conditions) != plain
    return {"view": await ask(messages.list_messages, name, wanted), "conditions": conditions if some else {}}


async def _message(ask: Ask, name: str, wanted: given.OneMessage) -> Content:
    view, events = await asyncio.gather(
        ask(messages.show_message, name, wanted), ask(messages.trace_message, name)
    )
    return {"view": view, "events": events}


async def _all_dead_letters(ask: Ask, _name: str, wanted: given.ListQueues) -> Content:
    shown = msgspec.structs.replace(wanted, exact=False, sort="dead", size=200)
    return {"view": await ask(queues.list_queues, given=shown), **_SURVEYED}


async def _dead_letters(ask: Ask, name: str, wanted: given.ListDeadLetters) -> Content:
    return {"view": await ask(dead_letters.list_dead_letters, name, wanted)}


async def _consumers(ask: Ask, _name: str, wanted: given.ListConsumers) -> Content:
    return {"view": await ask(queues.list_all_consumers, given=wanted)}


class WorkerView(msgspec.Struct, frozen=True):
    """A process that consumes, with its consumers."""

    host: str
    pid: int | None
    consumers: list[ConsumerView]

    @property
    def held(self) -> int:
        """Return how many messages its consumers hold."""
        return sum(each.held for each in self.consumers)


async def _tasks(ask: Ask, _name: str, wanted: given.ListTasks) -> Content:
    view, consumers = await asyncio.gather(
        ask(features.list_tasks, given=wanted), ask(queues.list_all_consumers)
    )
    return {"view": view, "workers": workers_of(consumers)}


def workers_of(view: ConsumersView) -> list[WorkerView]:
    """Return the processes that live, each with its consumers."""
    found: dict[tuple[str, int | None], list[ConsumerView]] = {}
    for each in view.consumers:
        if each.alive:
            found.setdefault((each.host or "unknown host", each.pid), []).append(each)
    return [
        WorkerView(host, pid, each)
        for (host, pid), each in sorted(found.items(), key=lambda item: str(item[0]))
    ]


async def _workflows(ask: Ask, _name: str, wanted: given.ListWorkflows) -> Content:
    return {"view": await ask(features.list_workflows, given=wanted)}


async def _workflow(ask: Ask, name: str, _wanted: Any) -> Content:
    view: WorkflowDetail = await ask(features.show_workflow, name)
    return {"view": view, "levels": levels_of(view)}


def levels_of(view: WorkflowDetail) -> Sequence[Sequence[Any]]:
    """Return the steps by how many others they follow, so that each is below those that it waits for."""
    depth: dict[int, int] = {}
    for number, step in enumerate(view.steps):  # a step only waits for earlier ones
        depth[number] = 1 + max((depth.get(each, 0) for each in step.after), default=0)
    levels: dict[int, list[Any]] = {}
    for number, step in enumerate(view.steps):
        levels.setdefault(depth[number], []).append(step)
    return [levels[level] for level in sorted(levels)]


async def _schedules(ask: Ask, _name: str, _wanted: Any) -> Content:
    return {"view": await ask(features.list_schedules)}


async def _topics(ask: Ask, _name: str, _wanted: Any) -> Content:
    return {"view": await ask(features.list_topics)}


async def _limits(ask: Ask, _name: str, _wanted: Any) -> Content:
    return {"view": await ask(features.list_limits)}


async def _system(ask: Ask, _name: str, _wanted: Any) -> Content:
    return {"view": await ask(features.show_system)}


async def _checks(ask: Ask, _name: str, _wanted: Any) -> Content:
    return {"view": await ask(features.run_checks)}


PAGES = (
    Page("/", "overview", "Overview", given.Nothing, _overview),
    Page("/queues", "queues", "Queues", given.ListQueues, _queues),
    Page("/queues/{queue:path}", "queue", "Queue", given.Shards, _queue),
    Page("/messages/{queue:path}", "messages", "Messages", given.ListMessages, _messages),
    Page("/message/{id:path}", "message", "Message", given.OneMessage, _message),
    Page("/dead-letters", "all_dead_letters", "Dead letters", given.ListQueues, _all_dead_letters),
    Page("/dead-letters/{queue:path}", "dead_letters", "Dead letters", given.ListDeadLetters, _dead_letters),
    Page("/consumers", "consumers", "Consumers", given.ListConsumers, _consumers),
    Page("/tasks", "tasks", "Workers and tasks", given.ListTasks, _tasks),
    Page("/workflows", "workflows", "Workflows", given.ListWorkflows, _workflows),
    Page("/workflows/{id:path}", "workflow", "Workflow", given.Nothing, _workflow),
    Page("/schedules", "schedules", "Schedules", given.Nothing, _schedules),
    Page("/topics", "topics", "Topics and lag", given.Nothing, _topics),
    Page("/limits", "limits", "Limits", given.Nothing, _limits),
    Page("/checks", "checks", "Checks", given.Nothing, _checks),
    Page("/system", "system", "System", given.Nothing, _system),
)
