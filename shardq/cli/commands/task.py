"""``shardq task``: tasks and workflows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NoReturn, cast, get_args

import click

from shardq.base.receipt import MessageId
from shardq.cli.command import ExampleGroup, ReadCommand, Session, complete_queues, json_option, read_each
from shardq.cli.failures import NOT_FOUND
from shardq.cli.printing import note, print_columns, print_json, print_line
from shardq.cli.task_drawing import as_mermaid, as_svg, as_text
from shardq.client.queue import Queue
from shardq.client.queue_internals import stored_in
from shardq.core.message import StoredMessage
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.tasks.entries import NAME, ancestors_of, check_task_id, in_run, is_step, kept_seconds, run_of
from shardq.tasks.result import Result
from shardq.tasks.task_client import TaskClient
from shardq.tasks.views import (
    MOST_LISTED,
    TaskView,
    WorkflowState,
    WorkflowView,
    newest_workflows,
    view_of_message,
    view_of_task,
    views_of_steps,
)
from shardq.tasks.workflow_result import WorkflowResult

__all__ = ["task"]

_DRAWINGS = {"mermaid": as_mermaid, "svg": as_svg}
_STATES = ("waiting", *get_args(WorkflowState))
# States of tasks that are in queues, those of dead letters too.
_OPEN = (None, "waiting", "running", "failed")
_PAGE = 100
_TIME = "%Y-%m-%d %H:%M:%S"

task = ExampleGroup(
    name="task",
    help=(
        "List, show, cancel and retry tasks and workflows.\n\nWorkers run them: `shardq work --tasks`. An ID with # is "
        "one of a step; quote it."
    ),
    example="shardq task list mail\nshardq task show mail:3:1:0197c8a2b4d07abc8123456789abcdef:0",
)


def _checked_id(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    check_task_id(given)
    return given


_id = click.argument("identity", metavar="ID", callback=_checked_id)


@task.command(
    "list",
    short_help="List tasks and workflows.",
    cls=ReadCommand,
    example="shardq task list mail mail.dead --state failed",
)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=complete_queues)
@click.option("--state", type=click.Choice(_STATES), help="Those in this state only.")
@click.option("--name", help="Those of this name only: of a task, or of a workflow.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_LISTED),
    default=100,
    show_default=True,
    help="Tasks that are listed, and workflows.",
)
@json_option
@click.pass_obj
def list_tasks(
    session: Session,
    /,
    queues: Sequence[str],
    state: str | None,
    name: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the tasks that wait or run, and the workflows that have begun.

    Those of the queues that are named, else of all; dead letters have failed, and are listed under their own queue. A
    workflow that waits is called shardq.workflow. Once it has begun it is listed with its state and times, the newest
    first, for as long as it is kept. Its steps that wait or run are among the tasks, with ids that begin with its own.
    """
    queues = list(dict.fromkeys(queues))
    tasks = list(islice(_tasks_in(session, queues, state, name), limit))
    flows = _flows_in(session, queues or None, state, name, limit)
    if as_json:
        print_json({"tasks": tasks, "workflows": flows})
        return
    if tasks:
        heads = ("task", "state", "deliveries", "queue", "id")
        print_columns(
            [heads, *((each.task, each.state, each.deliveries, each.queue, each.id) for each in tasks)]
        )
    if flows:
        print_columns([("workflow", "state", "begun", "ended", "id"), *map(_flow_line, flows)])


def _tasks_in(
    session: Session, queues: Sequence[str], state: str | None, name: str | None
) -> Iterator[TaskView]:
    opened: Iterable[Queue] = map(session.queue, queues)
    if not queues:
        opened = read_each(session.client.queues(), session.client.queue, session.skipped_errors)
    for queue in opened:
        messages = _stored(queue, named=bool(queues)) if state in _OPEN else iter(())
        while some := list(islice(messages, _PAGE)):
            running = _task_client(session).running(some)
            views = (view_of_message(each, queue.name, running) for each in some if NAME in each.headers)
            yield from (view for view in views if state in (None, view.state) and name in (None, view.task))


def _stored(queue: Queue, *, named: bool) -> Iterator[StoredMessage]:
    try:
        yield from stored_in(queue, _PAGE)
    except QueueNotFound:  # it was deleted since it was listed
        if named:
            raise


def _flows_in(
    session: Session, queues: Sequence[str] | None, state: str | None, name: str | None, limit: int
) -> list[WorkflowView]:
    if state == "waiting":
        return []
    wanted = cast("WorkflowState | None", state)
    return newest_workflows(_task_client(session), state=wanted, name=name, queues=queues, limit=limit)


def _flow_line(flow: WorkflowView) -> tuple[str, ...]:
    ended = "" if flow.ended is None else f"{flow.ended:{_TIME}}"
    return (flow.name, flow.state, f"{flow.begun:{_TIME}}", ended, flow.id)


@task.command(
    "show",
    cls=ReadCommand,
    example="shardq task show mail:3:1:0197c8a2b4d07abc8123456789abcdef:0 --graph svg >flow.svg",
)
@_id
@click.option("--graph", type=click.Choice(list(_DRAWINGS)), help="Draw the steps of a workflow.")
@json_option
@click.pass_context
def show(ctx: click.Context, /, identity: str, graph: str | None, as_json: bool) -> None:
    """Show a task, or the steps of a workflow as a tree.

    Of a task that has failed its arguments are shown in short, and its traceback, while its result is kept. ID may
    also be that of its dead letter.

    A large group has buckets of some hundreds of steps: give the id of one to see them. Times are in UTC, by the
    store's clock. Exit code 3 means that nothing is known of it.
    """
    task_client = _task_client(ctx.ensure_object(Session))
    flow = WorkflowResult(task_client, identity.partition("#")[0], {})
    shown = _in_last_run(task_client, identity)
    steps = views_of_steps(task_client, shown)
    if not steps:
        view = view_of_task(task_client, shown)
        if graph is not None and view is not None:
            raise InvalidSetting(f"{identity} is a single task: --graph draws the steps of a workflow")
        _show_task(ctx, view, identity, as_json=as_json)
    elif graph is not None:
        print_line(_DRAWINGS[graph](steps))
    elif as_json:
        print_json({"id": shown, "state": flow.state, "run": run_of(shown), "steps": steps})
    else:
        run = f"  run {run_of(shown)}" if run_of(shown) else ""
        print_line(f"workflow {flow.id}  {flow.state}{run}")
        print_line(as_text(steps))


def _end_unknown(ctx: click.Context, identity: str) -> NoReturn:
    note(f"shardq: task_not_found: nothing is known of {identity}: it ended longer ago than it is kept")
    ctx.exit(NOT_FOUND)


def _show_task(ctx: click.Context, view: TaskView | None, identity: str, *, as_json: bool) -> None:
    if view is None:
        note(
            f"shardq: task_not_found: nothing is known of {identity}: it has ended longer ago than its result is kept"
        )
        ctx.exit(NOT_FOUND)
    if as_json:
        print_json(view)
        return
    rows = {
        "id": view.id,
        "sent as": view.sent_as,
        "task": view.task,
        "call": view.call,
        "state": view.state,
        "queue": view.queue,
        "deliveries": view.deliveries and f"{view.deliveries:,}",
        "ended": view.ended and f"{view.ended:{_TIME}}",
        "seconds": view.seconds and f"{view.seconds:.3g}",
        "failure": view.failure,
    }
    print_columns([(name, value) for name, value in rows.items() if value])
    if view.traceback:
        print_line(view.traceback.rstrip())


@task.command("cancel", example="shardq task cancel mail:3:1:0197c8a2b4d07abc8123456789abcdef:0")
@_id
@json_option
@click.pass_context
def cancel(ctx: click.Context, /, identity: str, as_json: bool) -> None:
    """Cancel a task, or all of a workflow that has not ended.

    Waiting tasks do not run; running ones find out. It can be repeated.
    """
    task_client = _task_client(ctx.ensure_object(Session))
    if "#" not in identity and task_client.planned(identity) is not None:
        cancelled = WorkflowResult(task_client, identity, {}).cancel()
    elif (view := view_of_task(task_client, identity)) is None:
        _end_unknown(ctx, identity)
    else:
        cancelled = _cancelled(task_client, identity, view)
    if as_json:
        print_json({"cancelled": cancelled})
    else:
        note(f"{identity} is cancelled" if cancelled else f"{identity} has ended: nothing is cancelled")


def _cancelled(task_client: TaskClient, identity: str, view: TaskView) -> bool:
    """Cancel a task; True if it is cancelled, now or before. A dead letter stays."""
    if view.sent_as is not None or view.state == "failed":
        return view.state == "cancelled"
    message = task_client.find(identity)
    keep = 0.0 if message is None else kept_seconds(message)
    return Result[object](task_client, identity, None, keep).cancel() or view.state == "cancelled"


@task.command("retry", example="shardq task retry mail:3:1:0197c8a2b4d07abc8123456789abcdef:0")
@_id
@json_option
@click.pass_context
def retry(ctx: click.Context, /, identity: str, as_json: bool) -> None:
    """Run the failed steps of a workflow again.

    Steps that are done stay so. It can be repeated: while the workflow runs, nothing happens. A single task that has
    failed is a dead letter: see `shardq redrive`.
    """
    task_client = _task_client(ctx.ensure_object(Session))
    flow = WorkflowResult(task_client, identity, {})
    if task_client.planned(flow.id) is None:
        if (view := view_of_task(task_client, flow.id)) is None:
            _end_unknown(ctx, identity)
        if is_step(view.id):
            raise InvalidSetting(
                f"{identity} is the dead letter of a step: `shardq task retry '{ancestors_of(view.id)[-1]}'` retries "
                "its workflow"
            )
        queue = MessageId.parse(view.sent_as or flow.id).shard.queue
        raise InvalidSetting(
            f"{identity} is a single task: `shardq redrive {queue}` sends the dead letters of its queue back"
        )
    retried = flow.retry()
    if as_json:
        print_json({"retried": retried})
    else:
        note(f"{flow.id} runs again" if retried else f"{flow.id} is {flow.state}: nothing has to run again")


def _task_client(session: Session) -> TaskClient:
    return TaskClient(session.client, lambda _queue, _tasks: {})


def _in_last_run(task_client: TaskClient, identity: str) -> str:
    if run_of(identity):
        return identity
    return in_run(identity, task_client.results.last_run(identity.partition("#")[0]))
