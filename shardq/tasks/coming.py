"""Whether a step that is not in its queue, and has not ended, may still be sent.

Whoever ends a step sends what comes next before the message of the step leaves its queue. So a workflow that goes on
has a message in a queue at every moment. It is looked for in the order in which the workflow goes on: what moves on
while this looks is met further on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardq.tasks.binding import Binding
from shardq.tasks.ids import split_step
from shardq.tasks.plans import Plan

__all__ = ["may_come"]

MOST_AT_ONCE = 256  # steps that one request asks for


def may_come(binding: Binding, step: str) -> bool:
    """True while a step that is not in its queue, and has not ended, may still be sent; or the steps of a bucket.

    Also while something is under way that a task, or a step, has returned in place of a value.

    Whoever gets False looks once more for the step and its entry.
    """
    if "#" not in step:  # it may have returned a workflow
        return _has_open_steps(binding, step)
    workflow, number = split_step(step)
    if (plan := binding.plan(workflow)) is None:  # it has not begun, or is over
        return binding.find(step.partition("#")[0]) is not None or binding.plan(workflow) is not None
    if number >= len(plan.steps):
        return False
    if _comes(binding, workflow, plan, plan.steps[number].after):
        return True
    return binding.find(step) is not None or _has_open_steps(binding, step)


def _comes(binding: Binding, workflow: str, plan: Plan, after: Sequence[int]) -> bool:
    """True while something is under way that comes before the steps of a workflow that wait for these."""
    if "#" in workflow:
        outer, number = split_step(workflow)
        around = binding.plan(outer)
        if (
            around is not None
            and number < len(around.steps)  # ids are forged
            and _comes(binding, outer, around, around.steps[number].after)
        ):
            return True
    return binding.find(workflow) is not None or _any_open(binding, workflow, plan, after)


def _any_open(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int]) -> bool:
    """True while one of these steps is in its queue, or one before them, or one that such a step is made of.

    First all are looked for together. What moves on meanwhile is met by the second look, one after the other. A step
    that failed may end what comes after it, also where errors are collected, so that entries tell little: its message
    is in its queue until all that follows from it is sent.
    """
    if not numbers:
        return False
    if binding.find_steps(workflow, plan, numbers):  # it is, most of the time
        return True
    line = _with_those_before(plan, numbers)
    entered = _entered(binding, workflow, line)
    if any(binding.find_steps(workflow, plan, some) for some in _cut(line)):
        return True
    return any(
        (number not in entered and binding.find_steps(workflow, plan, [number]))
        or _has_open_steps(binding, f"{workflow}#{number}")
        for number in line
    )


def _with_those_before(plan: Plan, numbers: Sequence[int]) -> list[int]:
    """These steps and all that they wait for, each behind those before it."""
    found, left = set[int](), list(numbers)
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += plan.steps[number].after
    return sorted(found)  # a step has a higher number than those before it


def _entered(binding: Binding, workflow: str, numbers: Sequence[int]) -> set[int]:
    """Those of which something stands."""
    return {
        number
        for some in _cut(numbers)
        for number, there in zip(
            some, binding.results.entered([f"{workflow}#{each}" for each in some]), strict=True
        )
        if there
    }


def _cut(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[place : place + MOST_AT_ONCE] for place in range(0, len(numbers), MOST_AT_ONCE))


def _has_open_steps(binding: Binding, bucket: str) -> bool:
    plan = binding.plan(bucket)
    return plan is not None and _any_open(binding, bucket, plan, plan.ends)
