"""The ids of tasks, workflows and steps, the unique keys that are made of them, and the headers of their messages.

A workflow has the id of the message that begins it. A step has a path behind it: its number, behind those of the
buckets that it is in, as in ``tasks:0:3:...:0#2#17``. When a workflow was retried, the number of the run stands before
the path: ``tasks:0:3:...:0@1#2#17``. The first run is 0, which is left out. The name of the queue, with which the id
begins, may have an @ too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from shardq.base.outgoing_message import Headers
from shardq.base.receipt import ID_PATTERN, MessageId
from shardq.base.wording import shown
from shardq.core.sending.prepared import MAX_KEY_LENGTH
from shardq.errors import InvalidMessage, InvalidReceipt
from shardq.message import Message, StoredMessage
from shardq.tasks.options import LONGEST_KEPT

__all__ = [
    "StepId",
    "ancestors_of",
    "check_task_id",
    "headers_of",
    "in_run",
    "is_step",
    "is_step_message",
    "kept_seconds",
    "key_of",
    "result_id",
    "run_of",
    "runs_of",
    "split_step",
    "step_id",
]

NAME, KEEP, TIMEOUT, STEP = "task", "task-keep", "task-timeout", "task-step"
"""The headers of a task's message; the last one only of a step's: the id under which its result is stored."""

APART = "task-input-apart"
"""Of a step that takes what does not fit into its message: its worker reads what the steps before it returned."""

RUN = "task-run"
"""Of the message that begins another run of a workflow: the id of the run."""

WORKFLOW = "shardq.workflow"
"""What the message is called that begins a workflow, in place of a task's name."""


class StepId(NamedTuple):
    """The id of a step of a workflow, and the unique key of its message."""

    text: str
    key: str


def step_id(workflow: str, number: int) -> StepId:
    """The id of a step, made of that of the workflow or bucket."""
    text = f"{workflow}#{number}"
    return StepId(text, key_of("workflow", text))


def split_step(step: str) -> tuple[str, int]:
    """The workflow or bucket of a step, and its number in it."""
    workflow, _, number = step.rpartition("#")
    return workflow, int(number)


def ancestors_of(step: str) -> list[str]:
    """The ids of the buckets that a step is in, from the inside out, then that of the workflow; none of a task."""
    found: list[str] = []
    while "#" in step:
        found.append(step := step.rpartition("#")[0])
    return found


def run_of(task: str) -> int:
    """The number of the run of a workflow that an id is of."""
    return _parts(task).run


def in_run(task: str, run: int) -> str:
    """The id of the same workflow or step in another run."""
    message, _, path = _parts(task)
    return f"{message}@{run}{path}" if run else f"{message}{path}"


def runs_of(task: str) -> list[str]:
    """The ids of a step in its run and in those before it."""
    return [task, *(in_run(task, run) for run in reversed(range(run_of(task))))]


def check_task_id(task: object) -> None:
    """Raise InvalidReceipt for what is no id of a task, of a workflow or of a step."""
    if not isinstance(task, str) or _ID.fullmatch(task) is None:
        raise InvalidReceipt(
            f"{shown(task)} is no message id, and none of a task or step: give one as `send` returned it, or as "
            "`shardq task show` shows it, such as ID#2#17"
        )


def is_step(task: object) -> bool:
    """True for the id of a step, under which an entry can be written. There need not be such a step: ids are forged."""
    if not isinstance(task, str) or "#" not in task or _ID.fullmatch(task) is None:
        return False
    return len(key_of("r", task)) <= MAX_KEY_LENGTH


def key_of(kind: str, task: str) -> str:
    """The key of an entry: the id of a bundle is unique among all queues."""
    message, run, path = _parts(task)
    place = MessageId.parse(message)
    key = f"{kind}-{place.bundle_id.hex()}-{place.position}{path.replace('#', '-')}"
    return f"{key}@{run}" if run else key


class _Parts(NamedTuple):
    """Of an id: that of the message which begins the workflow, the run, and the path with its marks."""

    message: str
    run: int
    path: str


def _parts(task: str) -> _Parts:
    workflow, mark, path = task.partition("#")
    place, colon, position = workflow.rpartition(":")
    number, _, run = position.partition("@")
    return _Parts(f"{place}{colon}{number}", int(run) if run else 0, f"{mark}{path}")


MOST_RUNS = 9_999
"""Of one workflow. What became of a step is looked for in the runs before its own, too."""

_ID = re.compile(rf"{ID_PATTERN}(@[1-9][0-9]{{0,3}})?(#(0|[1-9][0-9]{{0,8}}))*")


def headers_of(message: Message | StoredMessage) -> Headers:
    """The headers of a message; none of one that is damaged in the store, which fails when its task is looked for."""
    try:
        return message.headers
    except InvalidMessage:
        return {}


def result_id(message: Message) -> str:
    """The id under which the result of a task is stored: its own, or that of the step."""
    step = headers_of(message).get(STEP)
    return str(step) if step is not None and is_step(step) else message.id


def kept_seconds(message: Message | StoredMessage) -> float:
    """For how many seconds the result of a task is kept. What others wrote into its header harms nobody."""
    keep = headers_of(message).get(KEEP)
    return min(float(keep), LONGEST_KEPT) if isinstance(keep, int | float) and keep > 0 else 0.0


def is_step_message(message: Message) -> bool:
    """True for the message of a step of a workflow."""
    step = headers_of(message).get(STEP)
    return step is not None and is_step(step)
