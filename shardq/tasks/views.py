"""The states of tasks, workflows and their steps, for display."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Literal, TypeVar, cast, get_args

import msgspec

from shardq.base.texts import kind_of, shown
from shardq.core.message import StoredMessage
from shardq.core.settings import check_number
from shardq.core.settling.dead_letters import REASON, deliveries_before, origin
from shardq.errors import InvalidSetting
from shardq.storage.requests import EntryState
from shardq.tasks.entries import NAME, STEP, Entry, run_of
from shardq.tasks.plans import Plan, read_plan
from shardq.tasks.result import Result, TaskState
from shardq.tasks.steps import AT_ONCE, unblocks
from shardq.tasks.task_client import TaskClient

__all__ = [
    "TaskView",
    "WorkflowView",
    "newest_workflows",
    "view_of_message",
    "view_of_task",
    "views_of_steps",
]

T = TypeVar("T")

WorkflowState = Literal["running", "done", "failed", "cancelled"]

MOST_LISTED = 10_000
_PAGE = 50  # workflows whose states are looked up together


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task, or of a step of a workflow, when it was read.

    ``after`` are the numbers of the steps that a step waits for. A bucket of a large group has ``steps``, which can be
    read by its id. ``ended`` is by the store's clock, ``seconds`` how long its last attempt ran. A dead letter has a
    new id, and ``sent_as`` is the one that its task had. ``call`` and ``traceback`` are set for a single task that has
    failed.

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
    """Return a task whose message is in its queue. A dead letter has failed, and so has one that holds up its group.

    ``running`` has the ids of the messages whose tasks run: see :meth:`TaskClient.running`.
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


def view_of_task(client: TaskClient, identity: str) -> TaskView | None:
    """Return a task by its id; None when nothing is known of it."""
    message, queue = client.stored(identity), identity.partition(":")[0]
    if message is not None and (NAME not in message.headers or message.state is EntryState.PROCESSED):
        message = None
    view = None if message is None else view_of_message(message, queue, client.running([message]))
    sent_as = identity if view is None or view.sent_as is None else view.sent_as
    found = client.results.dated([sent_as]).get(sent_as)
    if found is None:
        return view
    return _explained(view or TaskView(id=identity, task="", state="waiting", queue=queue), *found)


def _explained(view: TaskView, entry: Entry, ended: datetime) -> TaskView:
    """Return a task that has ended, with all that is known of its failure."""
    view = _with_entry(view, entry, ended)
    if (failure := entry.failure) is None:
        return view
    return msgspec.structs.replace(
        view,
        task=view.task or failure.call.partition("(")[0],
        deliveries=failure.deliveries or view.deliveries,
        call=failure.call or None,
        traceback=failure.traceback or None,
    )


def views_of_steps(client: TaskClient, workflow: str) -> list[TaskView]:
    """Return the steps of a workflow or bucket, in their order; none when it does not exist."""
    plan = client.planned(workflow)
    if plan is None:
        return []
    views = [_view_of_step(client, workflow, plan, number) for number in range(len(plan.steps))]
    messages = (
        client.find_steps(workflow, plan, range(len(plan.steps))) if client.find(workflow) is None else None
    )
    ended: dict[int, Entry] = {}
    for number, found in enumerate(_ended_steps(client, [view.id for view in views])):
        if found is not None:
            views[number], ended[number] = _with_entry(views[number], *found), found[0]
    if messages is None:  # it has not begun
        return views
    running = client.running(messages.values())
    return [
        _opened(client, view, messages.get(number), running)
        if view.ended is None and all(unblocks(plan, each, ended.get(each)) for each in view.after)
        else view
        for number, view in enumerate(views)
    ]


def _ended_steps(client: TaskClient, steps: Sequence[str]) -> Iterator[tuple[Entry, datetime] | None]:
    """Return the outcomes of steps, without their values, and when these came."""
    for place in range(0, len(steps), AT_ONCE):
        some = steps[place : place + AT_ONCE]
        dated = client.results.dated(some)
        for found in map(dated.get, some):
            yield None if found is None else (msgspec.structs.replace(found[0], value=b""), found[1])


def _view_of_step(client: TaskClient, workflow: str, plan: Plan, number: int) -> TaskView:
    step, identity = plan.steps[number], f"{workflow}#{number}"
    inner = client.plan(identity) if step.is_bucket else None
    return TaskView(
        id=identity,
        task=step.task if not step.is_bucket else "bucket",
        state="waiting",
        queue=step.queue,
        after=step.after,
        steps=None if inner is None else len(inner.steps),
    )


def _opened(
    client: TaskClient, view: TaskView, message: StoredMessage | None, running: Container[str]
) -> TaskView:
    """Return the view of a step that waits for none any more and has not ended."""
    if message is not None:
        found = view_of_message(message, view.queue, running)
        return msgspec.structs.replace(view, state=found.state, deliveries=found.deliveries)
    state = Result(client, view.id, None, 1.0).state
    return msgspec.structs.replace(view, state="running" if view.steps and state == "waiting" else state)


def _with_entry(view: TaskView, entry: Entry, ended: datetime) -> TaskView:
    return msgspec.structs.replace(
        view,
        state=entry.state,
        ended=ended,
        seconds=entry.seconds,
        failure=_failure_of(entry),
    )


def _failure_of(entry: Entry) -> str | None:
    return None if entry.failure is None else str(entry.failure)


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a workflow when it was read.

    ``begun`` is when a worker received it, ``ended`` when it was done, or was seen to have failed, by the store's
    clock. Its entries are kept until ``kept_until``. ``run`` is above 0 when it was retried.

    >>> from shardq.tasks import Tasks, chain
    >>> tasks = Tasks(url)
    >>> @tasks.task
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> result = chain(double.signature(1), double.then()).send(name="nightly")
    >>> ran = tasks.drain()
    >>> [(each.name, each.state) for each in tasks.workflows()]
    [('nightly', 'done')]
    """

    id: str
    name: str
    state: WorkflowState
    queue: str
    begun: datetime
    kept_until: datetime
    ended: datetime | None = None
    run: int = 0
    failure: str | None = None


class _Begun(msgspec.Struct, frozen=True):
    """A workflow whose state was not looked up."""

    view: WorkflowView
    plan: Plan


def newest_workflows(
    client: TaskClient,
    *,
    state: WorkflowState | None = None,
    name: str | None = None,
    queues: Sequence[str] | None = None,
    limit: int = 100,
) -> list[WorkflowView]:
    """Return the newest workflows of a state, of a name and of queues. At most twice ``limit`` are in memory."""
    check_number("limit", limit, 1, MOST_LISTED, whole=True)
    if state is not None and state not in get_args(WorkflowState):
        raise InvalidSetting(
            f"state={shown(state)} of workflows: give one of {', '.join(get_args(WorkflowState))}"
        )
    if not isinstance(name, str | None):
        raise InvalidSetting(f"name={shown(name)} of workflows is {kind_of(name)}: give a str")
    found = (
        each
        for each in _begun_workflows(client)
        if (name is None or each.view.name == name) and (queues is None or each.view.queue in queues)
    )
    if state is None:
        return list(_with_states(client, _newest(found, limit, lambda each: each.view)))
    looked_up = (each for each in _with_states(client, found) if each.state == state)
    return _newest(looked_up, limit, lambda view: view)


def _newest(found: Iterable[T], limit: int, view_of: Callable[[T], WorkflowView]) -> list[T]:
    """Return the newest of them, each once."""

    def age(each: T) -> tuple[datetime, str]:
        view = view_of(each)
        return view.begun, view.id

    kept: dict[str, T] = {}
    for each in found:
        kept[view_of(each).id] = each
        if len(kept) >= 2 * limit:
            kept = {view_of(one).id: one for one in heapq.nlargest(limit, kept.values(), key=age)}
    return heapq.nlargest(limit, kept.values(), key=age)


def _begun_workflows(client: TaskClient) -> Iterator[_Begun]:
    for workflow, message in client.results.workflows():
        plan = read_plan(cast("bytes", message.body))
        view = WorkflowView(
            id=workflow,
            name=plan.name,
            state="running",
            queue=workflow.partition(":")[0],
            begun=message.enqueued_at,
            kept_until=message.due,
        )
        yield _Begun(view, plan)


def _with_states(client: TaskClient, found: Iterable[_Begun]) -> Iterator[WorkflowView]:
    drawn = iter(found)
    while page := list(islice(drawn, _PAGE)):
        runs = client.results.last_runs([each.view.id for each in page])
        for each, run in zip(page, runs, strict=True):
            yield _view_of_workflow(client, each, run)


def _view_of_workflow(client: TaskClient, found: _Begun, run: str) -> WorkflowView:
    """Look up a state: failed or cancelled as soon as one of the ends is, done when all are."""
    entries = list(_ended_steps(client, [f"{run}#{end}" for end in found.plan.ends]))
    ended = [each for each in entries if each is not None]
    failed = [
        each
        for end, each in zip(found.plan.ends, entries, strict=True)
        if each is not None and not unblocks(found.plan, end, each[0])
    ]
    view = msgspec.structs.replace(found.view, run=run_of(run))
    if failed:
        entry, when = min(failed, key=lambda each: (each[0].state != "failed", each[1]))
        return msgspec.structs.replace(view, state=entry.state, ended=when, failure=_failure_of(entry))
    if len(ended) < len(entries):
        return view
    return msgspec.structs.replace(
        view, state="done", ended=max((when for _, when in ended), default=view.begun)
    )
