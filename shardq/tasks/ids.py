"""The ids of workflows and of their steps, and the unique keys that are made of them.

A workflow has the id of the message that begins it. A step has a path behind it: its number, behind those of the
buckets that it is in, as in ``tasks:0:3:...:0#2#17``. When a workflow was retried, the number of the run stands before
the path: ``tasks:0:3:...:0@1#2#17``. The first run is 0, which is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from shardq.receipt import MessageId

__all__ = [
    "StepId",
    "buckets_of",
    "check_task_id",
    "in_run",
    "key_of",
    "run_of",
    "runs_of",
    "split_step",
    "step_id",
]


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


def buckets_of(step: str) -> list[str]:
    """The ids of the buckets that a step is in, from the inside out."""
    found: list[str] = []
    while "#" in (step := step.rpartition("#")[0]):
        found.append(step)
    return found


def run_of(task: str) -> int:
    """The number of the run of a workflow that an id is of."""
    number = task.partition("#")[0].partition("@")[2]
    return int(number) if number else 0


def in_run(task: str, run: int) -> str:
    """The id of the same workflow or step in another run."""
    workflow, mark, path = task.partition("#")
    message = workflow.partition("@")[0]
    return f"{message}@{run}{mark}{path}" if run else f"{message}{mark}{path}"


def runs_of(task: str) -> list[str]:
    """The ids of a step in its run and in those before it."""
    return [task, *(in_run(task, run) for run in reversed(range(run_of(task))))]


def check_task_id(task: object) -> None:
    """Raise InvalidReceipt for what is no id of a task, or of a step."""
    MessageId.parse(in_run(task.partition("#")[0], 0) if isinstance(task, str) else task)  # type: ignore[arg-type]


def key_of(kind: str, task: str) -> str:
    """The key of an entry: the id of a bundle is unique among all queues."""
    workflow, _, path = task.partition("#")
    message, _, run = workflow.partition("@")
    place = MessageId.parse(message)
    parts = [kind, place.bundle_id.hex(), str(place.position), *filter(None, [path.replace("#", "-")])]
    return "-".join(parts) + (f"@{run}" if run else "")
