"""Endpoints of what is built on queues: tasks, workflows, schedules, topics, limits, and the store itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from shardq import StoredMessage
from shardq.base.texts import many, masked
from shardq.client.queue_internals import stored_in
from shardq.core.limits.permits import PERMITS_FOLDER
from shardq.core.limits.queue_limits import limit_names
from shardq.core.pinging import clock_finding
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.errors import QueueNotFound, ScheduleNotFound
from shardq.schedules import Schedule
from shardq.service.parameters import ListTasks, ListWorkflows, Nothing, ScheduleId
from shardq.service.store_access import UNREADABLE, NotFound, StoreAccess, gathered
from shardq.service.views import (
    ChecksView,
    FindingView,
    LimitsView,
    LimitView,
    SchedulesView,
    ScheduleView,
    SentView,
    SubscriptionView,
    SystemView,
    TasksView,
    TopicsView,
    TopicView,
    WorkflowDetail,
    WorkflowsView,
)
from shardq.tasks.views import TaskView

if TYPE_CHECKING:
    from shardq.tasks.task_client import TaskClient

__all__ = [
    "list_limits",
    "list_schedules",
    "list_tasks",
    "list_topics",
    "list_workflows",
    "pause_schedule",
    "resume_schedule",
    "run_checks",
    "show_system",
    "show_workflow",
    "trigger_schedule",
]

_MOST_QUEUES = 200
_MOST_SCANNED = 5_000
_PAGE = 100


# -- tasks and workflows ------------------------------------------------------------------------------------------


def _task_client(access: StoreAccess) -> TaskClient:
    from shardq.tasks import Tasks  # noqa: PLC0415 - an application may need none of it

    tasks = Tasks()
    tasks.bind(access.store.sync)
    return tasks.task_client


async def list_tasks(access: StoreAccess, _name: str, given: ListTasks) -> TasksView:
    """Return the tasks that wait or run, and those that are dead letters."""
    seen = [given.queue] if given.queue else access.seen(await access.store.names())
    names = seen[:_MOST_QUEUES]
    if given.queue:
        access.check("read", given.queue)

    def read() -> TasksView:
        from shardq.tasks.entries import NAME  # noqa: PLC0415 - as above
        from shardq.tasks.views import view_of_message  # noqa: PLC0415

        client, found, left, complete = _task_client(access), list[TaskView](), _MOST_SCANNED, names == seen
        page = min(_PAGE, max(1, _MOST_SCANNED // max(1, len(names))))
        reading = [(name, _stored(access, name, page)) for name in names]
        while reading and left > 0:
            going = []
            # Of each queue a page is read, so that no other messages hide the tasks of the queues after theirs.
            for name, stored in reading:
                try:
                    some = list(islice(stored, page))
                except UNREADABLE:
                    if given.queue:
                        raise
                    continue
                left -= len(some)
                tasks = [each for each in some if NAME in each.headers]
                running = client.running(tasks) if tasks else set()
                found += [view_of_message(each, name, running) for each in tasks]
                if len(some) < page:
                    continue
                if tasks or given.queue:
                    going.append((name, stored))
                else:
                    complete = False
            reading = going
        chosen = [
            each
            for each in found
            if (not given.state or each.state == given.state) and (not given.name or each.task == given.name)
        ]
        return TasksView(tasks=chosen[: given.limit], matching=len(chosen), complete=complete and not reading)

    view = await access.store.shared.read(("tasks", given, tuple(seen)), lambda: asyncio.to_thread(read))
    return msgspec.structs.replace(view, tasks=[_task(access, each) for each in view.tasks])


def _task(access: StoreAccess, task: TaskView) -> TaskView:
    """Return a task without the ids of queues that the key does not see: that of its workflow, and its first one."""
    return msgspec.structs.replace(
        task,
        id=f"#{task.number}" if access.hides(task.id) else task.id,
        sent_as=None if access.hides(task.sent_as) else task.sent_as,
    )


def _stored(access: StoreAccess, name: str, page: int) -> Iterator[StoredMessage]:
    """Read the messages of a queue, which is opened when the first one is asked for."""
    yield from stored_in(access.store.sync.queue(name), page)


async def list_workflows(access: StoreAccess, _name: str, given: ListWorkflows) -> WorkflowsView:
    """Return the newest workflows that have begun."""
    names = access.seen(await access.store.names())

    def read() -> WorkflowsView:
        from shardq.tasks.views import newest_workflows  # noqa: PLC0415 - as above

        state: Any = given.state or None
        found = newest_workflows(
            _task_client(access), state=state, name=given.name or None, queues=names, limit=given.limit
        )
        return WorkflowsView(workflows=found)

    key = ("workflows", given, tuple(names))
    found = await access.store.shared.read(key, lambda: asyncio.to_thread(read))
    if access.grant.sees_all:
        return found
    # A failure may be that of a step in a queue that the key does not see; the view of the workflow tells them apart.
    return WorkflowsView(workflows=[msgspec.structs.replace(each, failure=None) for each in found.workflows])


async def show_workflow(access: StoreAccess, workflow: str, _given: Nothing) -> WorkflowDetail:
    """Return the steps of a workflow, in their order."""

    def read() -> WorkflowDetail:
        from shardq.tasks.entries import check_task_id  # noqa: PLC0415 - as above
        from shardq.tasks.views import views_of_steps  # noqa: PLC0415

        check_task_id(workflow)
        return WorkflowDetail(id=workflow, steps=views_of_steps(_task_client(access), workflow))

    found = await access.store.shared.read(("workflow", workflow), lambda: asyncio.to_thread(read))
    return WorkflowDetail(id=found.id, steps=[_step(access, each) for each in found.steps])


def _step(access: StoreAccess, step: TaskView) -> TaskView:
    """Return a step; of one in a queue that the key does not see only its state, its place and its times."""
    if access.grant.sees(step.queue):
        return step
    names = ("id", "state", "after", "steps", "ended", "seconds")
    return TaskView(task="", **{name: getattr(step, name) for name in names})


# -- schedules ----------------------------------------------------------------------------------------------------


async def list_schedules(access: StoreAccess, _name: str, _given: Nothing) -> SchedulesView:
    """Return the schedules of all queues."""
    found = await access.store.shared.read("schedules", access.client.schedules.list)
    return SchedulesView(schedules=[_schedule(each) for each in found if access.grant.sees(each.queue)])


def _schedule(schedule: Schedule) -> ScheduleView:
    return ScheduleView(**{name: getattr(schedule, name) for name in ScheduleView.__struct_fields__})


async def pause_schedule(access: StoreAccess, _name: str, given: ScheduleId) -> ScheduleView:
    """Pause a schedule, so that nothing takes place."""
    await _check_schedule(access, given.id)
    return _schedule(await access.client.schedules.pause(given.id))


async def resume_schedule(access: StoreAccess, _name: str, given: ScheduleId) -> ScheduleView:
    """Resume a schedule, with the first occurrence after now."""
    await _check_schedule(access, given.id)
    return _schedule(await access.client.schedules.resume(given.id))


async def trigger_schedule(access: StoreAccess, _name: str, given: ScheduleId) -> SentView:
    """Send the message of a schedule now."""
    await _check_schedule(access, given.id)
    return SentView(id=await access.client.schedules.trigger(given.id))


async def _check_schedule(access: StoreAccess, identity: str) -> None:
    with suppress(ScheduleNotFound):
        if access.grant.sees((await access.client.schedules.get(identity)).queue):
            return
    raise ScheduleNotFound(f"schedule {identity!r} does not exist, or the key has no right to see it")


# -- topics -------------------------------------------------------------------------------------------------------


async def list_topics(access: StoreAccess, _name: str, _given: Nothing) -> TopicsView:
    """Return the topics, each with its subscriptions and their lag. Patterns of keys match the topic's name."""
    names = access.seen(await access.store.shared.read("topics", access.client.topics))
    return TopicsView(topics=await gathered(_topic(access, name) for name in names))


async def _topic(access: StoreAccess, name: str) -> TopicView:
    async def read() -> TopicView:
        topic = await access.client.topic(name)
        retention, names = await asyncio.gather(topic.retention(), topic.subscriptions())

        async def subscription(each: str) -> SubscriptionView:
            state = await (await topic.subscription(each)).state()
            lag = state.ready + state.delayed + state.in_flight
            return SubscriptionView(lag=lag, **msgspec.structs.asdict(state))

        found = await gathered(map(subscription, names))
        return TopicView(name=name, retention=retention, subscriptions=found)

    return await access.store.shared.read(("topic", name), read)


# -- limits -------------------------------------------------------------------------------------------------------


async def list_limits(access: StoreAccess, _name: str, _given: Nothing) -> LimitsView:
    """Return the limits of the first 200 queues, and the semaphores."""
    seen = access.seen(await access.store.names())
    names = seen[:_MOST_QUEUES]
    limits = [limit for each in await gathered(_limits_of(access, name) for name in names) for limit in each]

    own = {limit for name in await access.store.names() for limit in limit_names(name)}
    queues = await access.store.shared.read("permits", lambda: access.client.queues(PERMITS_FOLDER))
    semaphores = [name for queue in queues if (name := queue.removeprefix(PERMITS_FOLDER)) not in own]
    return LimitsView(
        limits=[*limits, *await gathered(_semaphore(access, name) for name in access.seen(semaphores))],
        queues=len(names),
        total=len(seen),
    )


async def _limits_of(access: StoreAccess, name: str) -> list[LimitView]:
    settings = await access.store.settings(name)
    if not (settings.is_bounded or settings.is_limited):
        return []
    row = await access.store.row(name)
    limits: list[LimitView] = []

    def add(kind: Any, most: int | None, used: int | None, text: str = "") -> None:
        limits.append(LimitView(name=name, kind=kind, limit=text or f"{most:,}", used=used, most=most))

    if settings.max_in_flight is not None:
        add("in flight", settings.max_in_flight, row.in_flight)
    if settings.rate_limit is not None:
        add("rate", None, None, settings.rate_limit)
    if settings.max_messages is not None:
        add("waiting messages", settings.max_messages, row.ready + row.delayed)
    if settings.max_bytes is not None:
        counts = await (await access.client.queue(name)).counts()
        add("waiting bytes", settings.max_bytes, counts.bytes)
    return limits


async def _semaphore(access: StoreAccess, name: str) -> LimitView:
    async def read() -> LimitView:
        state = await (await access.client.semaphore(name)).state()
        text = f"{many(state.permits, 'permit')}, lease {state.lease:g} s"
        return LimitView(name=name, kind="semaphore", limit=text, used=state.held, most=state.permits)

    return await access.store.shared.read(("semaphore", name), read)


# -- the store ----------------------------------------------------------------------------------------------------


async def show_system(access: StoreAccess, _name: str, _given: Nothing) -> SystemView:
    """Return the store, its clock, and what is found about its health."""

    async def read() -> SystemView:
        findings = await access.client.diagnose()
        before = time.time()
        now = await access.client.now()
        offset = now.timestamp() - (before + time.time()) / 2
        return SystemView(
            version=version("shardq"),
            store=access.store.kind,
            store_time=now,
            clock_offset_seconds=round(offset, 6),
            findings=[_finding(each) for each in (*findings, clock_finding(offset))],
        )

    return await access.store.shared.read("system", read)


async def run_checks(access: StoreAccess, _name: str, _given: Nothing) -> ChecksView:
    """Check the store and all queues, as `shardq doctor` does. It reads each queue, so it may take some seconds."""
    doctor = access.doctor
    if doctor is None:
        raise NotFound("this service makes no checks of queues: `shardq doctor` does")

    async def read() -> list[FindingView]:
        found, _ = await asyncio.to_thread(doctor, access.store.sync, None)
        return [_finding(each, each.subject) for each in found]

    found = await access.store.shared.read("checks", read)
    seen = [each for each in found if each.subject == "store" or await _is_seen(access, each)]
    return ChecksView(wrong=sum(each.state == "wrong" for each in seen), findings=seen)


async def _is_seen(access: StoreAccess, finding: FindingView) -> bool:
    """Return whether the key sees the queue of a finding, and the dead-letter queue that it is about."""
    if not access.grant.sees(finding.subject):
        return False
    if finding.name != "dead letters":
        return True
    with suppress(QueueNotFound):  # it was deleted since it was checked
        settings = await access.store.settings(finding.subject)
        return access.grant.sees(dead_letter_name(finding.subject, settings))
    return False


def _finding(finding: Any, subject: str = "store") -> FindingView:
    state = "wrong" if not finding.ok else "warning" if finding.warning else "note" if finding.note else "ok"
    return FindingView(
        subject=subject,
        name=finding.name,
        state=cast("Literal['ok', 'warning', 'note', 'wrong']", state),
        value=masked(finding.value),
        remedy=masked("" if state == "ok" else finding.remedy),
    )
