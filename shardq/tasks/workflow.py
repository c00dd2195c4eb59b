"""Workflows: tasks that wait for others, and take their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast, get_args, overload

import msgspec

from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.texts import shown
from shardq.core.sending.prepared import prepare_options
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting
from shardq.tasks.arguments import Arguments
from shardq.tasks.entries import KEEP, NAME, WORKFLOW
from shardq.tasks.options import LONGEST_KEPT, TaskOptions
from shardq.tasks.plans import (
    Bucket,
    Plan,
    Step,
    bucket_of,
    check_plan,
    empty_bucket,
    is_empty,
    stream,
    tasks_in,
    write_plan,
)
from shardq.tasks.registry import TaskDefinition, TaskRegistry
from shardq.tasks.signature import Signature, in_thread, within
from shardq.tasks.workflow_result import NothingSent, WorkflowResult

__all__ = [
    "Workflow",
    "chain",
    "chord",
    "group",
    "group_of",
    "with_placeholder",
    "workflow_of",
]

BUCKET_STEPS = 200  # parts of a group that are not cut further
BUCKET_BYTES = 200_000  # of their arguments

KEEP_SECONDS = 86_400.0
MAX_NAME = 200
_SOME_ID = f"tasks:0:0:{0:032x}:0"  # a workflow gets its own when it is sent


class Workflow(msgspec.Struct, frozen=True):
    """Steps that wait for others. Made by :func:`chain`, :func:`group` and :func:`chord`, and put together by them.

    ``ends`` are the steps that none waits for. It is a value: it can be sent any number of times. One of an empty list
    is done as soon as a worker has received it, and its result is an empty list.

    >>> import shardq.tasks
    >>> tasks = shardq.tasks.Tasks(url)
    >>> @tasks.task
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> @tasks.task
    ... def total(numbers: list[int], plus: int = 0) -> int:
    ...     return sum(numbers) + plus
    >>> result = chord([double.signature(each) for each in range(10)], total.then(plus=1)).send()
    >>> tasks.drain().failed, result.get()
    (0, 91)
    """

    app: TaskRegistry | None  # None: nothing in it names a task
    steps: tuple[Step, ...]
    arguments: Mapping[str, Arguments]  # of its tasks, by their names
    ends: tuple[int, ...]
    many: bool = False  # its result is a list, of its ends
    buckets: Mapping[int, Bucket] = {}  # the plans of those steps that are buckets of a large group

    def send(
        self,
        *,
        keep: float = KEEP_SECONDS,
        delay: float = 0.0,
        name: str | None = None,
        transaction: object = None,
    ) -> WorkflowResult:
        """Send it: one message, from which a worker begins the first steps. Returns its result.

        The result of each step is kept for ``keep`` seconds. A step must not wait longer than that for others. Steps
        that wait for each other have to fit into a message together; a group may have any size. ``name`` is the one by
        which :meth:`Tasks.workflows` lists it, up to 200 characters; without it that of its first task. With a
        ``transaction`` of the application it begins after the commit. Raises the errors of :meth:`Task.send`. Nothing
        is stored then.
        """
        plan = self.plan(keep, next(iter(self.arguments), WORKFLOW) if name is None else _checked_name(name))
        if self.app is None:
            return NothingSent(cast("Any", None), _SOME_ID, {}, plan)
        body = check_plan(write_plan(plan))
        message = OutgoingMessage(body=body, headers={NAME: WORKFLOW, KEEP: 0.0}, delay=delay)
        task_client, queue = self.app.task_client, self.steps[plan.first[0]].queue
        task_client.check_groups(self.steps, self.buckets)
        tasks, sending = tasks_in(queue, self.steps, self.buckets), within(task_client, transaction)
        if self.buckets:
            root = Bucket(body, self.buckets)
            identity = sending.send_stream(queue, lambda: stream(root), message, tasks)
        else:
            (identity,) = sending.send(queue, [message], tasks)
        return WorkflowResult(task_client, identity, self.arguments, plan)

    async def asend(
        self, *, keep: float = KEEP_SECONDS, delay: float = 0.0, name: str | None = None
    ) -> WorkflowResult:
        """Send it from a coroutine, as :meth:`send` does. Cancelled, it is carried out before that is raised."""
        return await in_thread(partial(self.send, keep=keep, delay=delay, name=name))

    def plan(self, keep: float, name: str, *, replaces_task: bool = False) -> Plan:
        """Return the plan that is stored. Raises the errors of :meth:`send`."""
        check_number("keep", keep, 1.0, LONGEST_KEPT)
        for number, step in enumerate(self.steps):
            _check(step, number, keep)
        return Plan(self.steps, keep, self.ends, self.many or not self.steps, name, replaces_task)


Part = Signature[Any] | Workflow

Errors = Literal["stop", "collect"]
"""The effect of a failed call of a group: it is the failure of all that waits for the group, or an item of its
list."""


@overload
def group(*parts: Part, errors: Errors = "stop") -> Workflow: ...


@overload
def group(parts: Iterable[Part], /, *, errors: Errors = "stop") -> Workflow: ...


def group(*parts: Part | Iterable[Part], errors: Errors = "stop") -> Workflow:
    """Make steps that do not wait for each other: ``group(a, b)``, or of an iterable ``group(f(x) for x in many)``.

    The result is a list of theirs, in this order. A large group is cut into buckets of some hundreds of steps, so it
    may have any size. An iterator is drawn at once, one part after the other; of each its bytes are kept.

    With ``errors="collect"`` the failure of a part stops nothing: the list has a :class:`Collected` for each part, with
    its value or its failure.
    """
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Iterable):
        return group_of(only, errors)
    return group_of(cast("tuple[Part, ...]", parts), errors)


def group_of(parts: Iterable[Part], errors: Errors = "stop") -> Workflow:
    """Return a group of parts that are drawn one by one, and kept as they are sent. Raises as :func:`group` does."""
    if errors not in get_args(Errors):
        raise InvalidSetting(f"errors={shown(errors)} of a group: give one of {', '.join(get_args(Errors))}")
    cut: list[Workflow] = []
    some: list[Workflow] = []
    steps = size = 0
    for part in parts:
        if steps >= BUCKET_STEPS or size >= BUCKET_BYTES:
            cut.append(_bucket(some))
            some, steps, size = [], 0, 0
        if (member := _member(part, errors)).steps:
            some.append(member)
            steps += len(member.steps)
            size += sum(len(step.body) for step in member.steps)
    if not cut:
        return _beside(some)
    return group_of([*cut, _bucket(some)])


def _member(part: Part, errors: Errors) -> Workflow:
    """Return a part of a group; one that collects errors takes the outcomes of its ends in place of their results."""
    member = workflow_of(_checked_part(part))
    if errors == "stop":
        return member
    if any(
        member.steps[end].collected or (member.steps[end].is_bucket and not is_empty(member.buckets.get(end)))
        for end in member.ends
    ):
        raise InvalidSetting(
            "a group that collects errors has a large group, or one that collects errors itself, as the end of a part: "
            "let a step follow that within the part, or give errors='collect' to the inner group only"
        )
    steps = tuple(
        msgspec.structs.replace(step, collected=number + 1) if number in member.ends else step
        for number, step in enumerate(member.steps)
    )
    return msgspec.structs.replace(member, steps=steps)


def _beside(parts: Sequence[Workflow]) -> Workflow:
    """Return steps that do not wait for each other."""
    if not parts:
        return Workflow(None, (), {}, (), many=True)
    steps: list[Step] = []
    arguments: dict[str, Arguments] = {}
    ends: list[int] = []
    found: dict[int, Bucket] = {}
    for each in parts:
        ends += [len(steps) + end for end in each.ends]
        found |= _buckets_moved(each, len(steps))
        steps += _moved(each, len(steps))
        arguments |= each.arguments
    return Workflow(parts[0].app, tuple(steps), arguments, tuple(ends), many=True, buckets=found)


def _bucket(parts: Sequence[Workflow]) -> Workflow:
    """Return a workflow of one step, which is a bucket."""
    inner = _beside(parts)
    for number, step in enumerate(inner.steps):
        if not step.is_bucket:
            prepare_options(step.message(_SOME_ID, number, KEEP_SECONDS, b""), step.queue)
    step, bucket = bucket_of(Plan(inner.steps, KEEP_SECONDS, inner.ends, many=True), inner.buckets)
    return Workflow(inner.app, (step,), inner.arguments, (0,), buckets={0: bucket})


def chain(*parts: Part) -> Workflow:
    """Make steps of which each waits for the one before. One that :meth:`Task.then` made takes its result.

    A part may be a workflow. A step after a group waits for all of it, and takes a list: an empty one after an empty
    group. An empty chain is not a step of the chain that it is in.
    """
    given = [workflow_of(_checked_part(part)) for part in parts]
    known = next((each for each in given if each.steps), None)
    if known is not None:
        queue = known.steps[0].queue
        given = [with_placeholder(each, known.app, queue) for each in given if each.steps or each.many]
    if known is None or not given:
        return Workflow(None, (), {}, (), many=any(each.many for each in given))
    first, *others = given
    for each in others:
        steps = tuple(
            step if step.after else msgspec.structs.replace(step, after=first.ends, many=first.many)
            for step in _moved(each, len(first.steps))
        )
        ends = tuple(len(first.steps) + end for end in each.ends)
        found = {**first.buckets, **_buckets_moved(each, len(first.steps))}
        together = (*first.steps, *steps)
        first = Workflow(first.app, together, {**first.arguments, **each.arguments}, ends, each.many, found)
    return first


def chord(parts: Iterable[Part], callback: Part, *, errors: Errors = "stop") -> Workflow:
    """Make a group, and a step that runs once when all of it is done, and takes the list of its results.

    With ``errors="collect"`` it runs when all of it has ended, and takes a list of :class:`Collected`.
    """
    if not isinstance(parts, Iterable):
        raise InvalidSetting(f"chord: {shown(parts)} is not a list of steps: give chord([...], callback)")
    return chain(group_of(parts, errors), callback)


def with_placeholder(
    workflow: Workflow, app: TaskRegistry | None, queue: str, task: TaskDefinition | None = None
) -> Workflow:
    """Return the workflow. An empty one gets a step in this queue that ends as soon as it is received."""
    if workflow.steps:
        return workflow
    step, bucket = empty_bucket(queue, KEEP_SECONDS)
    arguments = {} if task is None else {task.name: task.arguments}
    return Workflow(app, (step,), arguments, (0,), many=True, buckets={0: bucket})


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidSetting(
            f"name={shown(name)} of a workflow: give a text of 1 to {MAX_NAME} printable characters"
        )
    return name


def _checked_part(part: Part) -> Part:
    if not isinstance(part, Signature | Workflow):
        raise InvalidSetting(
            f"{shown(part)} is not a step: give what signature(), then(), chain() or group() returns"
        )
    return part


def workflow_of(part: Part) -> Workflow:
    """Return a call as a workflow of one step. Raises InvalidSetting for one with options that steps cannot have."""
    if isinstance(part, Workflow):
        return part
    options = part.options
    _check_options(part.task.name, options, part.unique_key)
    step = Step(
        task=part.task.name,
        queue=options.queue,
        body=part.body,
        takes=part.takes,
        priority=options.priority,
        delay=options.delay,
        ttl=options.ttl,
        group=part.group,
        timeout=options.timeout,
    )
    return Workflow(part.task.app, (step,), {part.task.name: part.task.arguments}, (0,))


def _check_options(name: str, options: TaskOptions, unique_key: str | None) -> None:
    wrong = {"unique_key": unique_key, "dedupe_key": options.dedupe_key, "due": options.due}
    if given := [each for each, value in wrong.items() if value is not None]:
        raise InvalidSetting(
            f"{given[0]}={shown(wrong[given[0]])} of step {name!r}: steps of workflows have keys of their own; use "
            f"task.options({given[0]}=None), or delay"
        )


def _check(step: Step, number: int, keep: float) -> None:
    if step.takes is not None and not step.after:
        raise InvalidSetting(
            f"step {step.task!r} takes the result of a step before it, and there is none: make it with signature()"
            if not step.is_bucket
            else "a step of a large group takes the result of a step before it, and there is none: make it with "
            "signature()"
        )
    prepare_options(step.message(_SOME_ID, number, keep, b""), step.queue)


def _moved(workflow: Workflow, by: int) -> list[Step]:
    """Move the steps behind this number of others."""
    return [
        msgspec.structs.replace(step, after=tuple(number + by for number in step.after))
        for step in workflow.steps
    ]


def _buckets_moved(workflow: Workflow, by: int) -> dict[int, Bucket]:
    return {number + by: bucket for number, bucket in workflow.buckets.items()}
