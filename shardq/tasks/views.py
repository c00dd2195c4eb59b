"""What tasks and the steps of workflows are at, for people who look."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

import msgspec

from shardq.core.settling.dead_letters import REASON, deliveries_before, origin
from shardq.message import StoredMessage
from shardq.storage.requests import EntryState
from shardq.tasks.binding import Binding
from shardq.tasks.collected import goes_on
from shardq.tasks.gathering import AT_ONCE
from shardq.tasks.plans import NAME, STEP, Plan
from shardq.tasks.result import Result, TaskState
from shardq.tasks.results import Entry

__all__ = ["TaskView", "view_of_message", "view_of_task", "views_of_steps"]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """What a task, or a step of a workflow, was at when it was looked at.

    ``after`` are the numbers of the steps that a step waits for; a bucket of a large group has ``steps``, which can be
    looked at by its id. ``ended`` is by the store's clock, ``seconds`` how long its last attempt ran. A dead letter has
    an id of its own, and ``sent_as`` is the one that its task had. ``call`` and ``traceback`` are told of a single task
    that has failed.

    >>> TaskView(id="tasks:0:0:00:0#1", task="double", state="done", seconds=0.5).state
    'done'
    """

    id: str
    task: str
    state: TaskState
    queue: str = ""
    deliveries: int | None = None
    after: tuple[int, ...] = ()
    steps: int | None = None
    ended: datetime | None = None
    seconds: float | None = None
    failure: str | None = None
    sent_as: str | None = None
    call: str | None = None
    traceback: str | None = None

    @property
    def number(self) -> str:
        """The number of a step in its workflow."""
        return self.id.rpartition("#")[2]


def view_of_message(message: StoredMessage, queue: str, running: Container[str]) -> TaskView:
    """A task whose message is in its queue. A dead letter has failed, and so has one that holds up its group.

    ``running`` has the ids of the messages whose tasks run: see :meth:`Binding.running`.
    """
    reason = message.headers.get(REASON)
    failure = message.blocked if reason is None else reason
    at_work: TaskState = "running" if message.id in running else "waiting"
    return TaskView(
        id=str(message.headers.get(STEP, message.id)),
        task=str(message.headers[NAME]),
        state=at_work if failure is None else "failed",
        queue=queue,
        deliveries=message.deliveries if reason is None else deliveries_before(message.headers),
        failure=None if failure is None else str(failure),
        sent_as=None if reason is None or STEP in message.headers else origin(message.headers),
    )


def view_of_task(binding: Binding, identity: str) -> TaskView | None:
    """A task by its id; None when nothing is known of it."""
    message, queue = binding.stored(identity), identity.partition(":")[0]
    if message is not None and (NAME not in message.headers or message.state is EntryState.PROCESSED):
        message = None
    view = None if message is None else view_of_message(message, queue, binding.running([message]))
    sent_as = identity if view is None or view.sent_as is None else view.sent_as
    found = binding.results.dated([sent_as]).get(sent_as)
    if found is None:
        return view
    return _explained(view or TaskView(id=identity, task="", state="waiting", queue=queue), *found)


def _explained(view: TaskView, entry: Entry, ended: datetime) -> TaskView:
    """A task that has ended, with all that is known of its failure."""
    view = _ended(view, entry, ended)
    if (failure := entry.failure) is None:
        return view
    return msgspec.structs.replace(
        view,
        task=view.task or failure.call.partition("(")[0],
        deliveries=failure.deliveries or view.deliveries,
        call=failure.call or None,
        traceback=failure.traceback or None,
    )


def views_of_steps(binding: Binding, workflow: str) -> list[TaskView]:
    """The steps of a workflow or bucket, in their order. Empty when there is none of this id, or it has not begun."""
    plan = binding.planned(workflow)
    if plan is None:
        return []
    views = [_step(binding, workflow, plan, number) for number in range(len(plan.steps))]
    messages = (
        binding.find_steps(workflow, plan, range(len(plan.steps))) if binding.find(workflow) is None else None
    )
    ended: dict[int, Entry] = {}
    for place in range(0, len(views), AT_ONCE):
        entries = binding.results.dated([view.id for view in views[place : place + AT_ONCE]])
        for number, view in enumerate(views[place : place + AT_ONCE], place):
            if view.id in entries:
                entry, when = entries[view.id]
                views[number] = _ended(view, entry, when)
                ended[number] = msgspec.structs.replace(entry, value=b"")
    if messages is None:  # it has not begun
        return views
    running = binding.running(messages.values())
    return [
        _opened(binding, view, messages.get(number), running)
        if view.ended is None and all(goes_on(plan, each, ended.get(each)) for each in view.after)
        else view
        for number, view in enumerate(views)
    ]


def _step(binding: Binding, workflow: str, plan: Plan, number: int) -> TaskView:
    step, identity = plan.steps[number], f"{workflow}#{number}"
    inner = binding.plan(identity) if step.is_bucket else None
    return TaskView(
        id=identity,
        task=step.task if not step.is_bucket else "bucket",
        state="waiting",
        queue=step.queue,
        after=step.after,
        steps=None if inner is None else len(inner.steps),
    )


def _opened(
    binding: Binding, view: TaskView, message: StoredMessage | None, running: Container[str]
) -> TaskView:
    """A step that waits for none any more and has not ended, with what it is at."""
    if message is not None:
        found = view_of_message(message, view.queue, running)
        return msgspec.structs.replace(view, state=found.state, deliveries=found.deliveries)
    state = Result(binding, view.id, None, 1.0).state
    return msgspec.structs.replace(view, state="running" if view.steps and state == "waiting" else state)


def _ended(view: TaskView, entry: Entry, ended: datetime) -> TaskView:
    return msgspec.structs.replace(
        view,
        state=entry.state,
        ended=ended,
        seconds=entry.seconds,
        failure=None if entry.failure is None else str(entry.failure),
    )
