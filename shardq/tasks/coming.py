"""Whether a step that is not in its queue, and has not ended, may still be sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardq.errors import QueueNotFound
from shardq.queue import holders_of
from shardq.tasks.binding import Binding
from shardq.tasks.ids import split_step, step_id
from shardq.tasks.plans import Plan

__all__ = ["may_come"]


def may_come(binding: Binding, step: str) -> bool:
    """True while a step that is not in its queue, and has not ended, may still be sent; or the steps of a bucket."""
    return _comes(binding, step) or _has_open_steps(binding, step)


def _comes(binding: Binding, step: str) -> bool:
    """True while something that this step waits for is under way."""
    workflow, number = split_step(step)
    if binding.find(workflow) is not None:  # it has not begun yet
        return True
    if (plan := binding.plan(workflow)) is None:
        return False
    if "#" in workflow and binding.results.read(workflow) is None and _comes(binding, workflow):
        return True
    return _any_open(binding, workflow, plan, plan.steps[number].after)


def _has_open_steps(binding: Binding, bucket: str) -> bool:
    """True while steps of this bucket may still be sent, or one of them is in its queue."""
    plan = binding.plan(bucket)
    return plan is not None and _any_open(binding, bucket, plan, plan.ends)


def _any_open(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int]) -> bool:
    """True while what waits for these steps may still be sent: one is in its queue, or may come."""
    ids = [f"{workflow}#{number}" for number in numbers]
    if any(_in_queue(binding, workflow, plan, numbers)):
        return True
    entered = binding.results.entered(ids)
    open_first = sorted(zip(entered, numbers, ids, strict=True))
    return any(_is_open(binding, step, bucket=plan.steps[number].is_bucket) for _, number, step in open_first)


def _is_open(binding: Binding, step: str, *, bucket: bool) -> bool:
    """True while this step may still come, or steps of this bucket. Whoever ends the last of these may be at it."""
    if bucket and _has_open_steps(binding, step):
        return True
    if binding.results.read(step) is not None:
        return False
    return _comes(binding, step) or binding.find(step) is not None


def _in_queue(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int]) -> Iterator[bool]:
    """Which of these steps are in their queues, or are being sent."""
    by_queue: dict[str, list[str]] = {}
    for number in numbers:
        by_queue.setdefault(plan.steps[number].queue, []).append(step_id(workflow, number).text)
    for queue, steps in by_queue.items():
        for step, holder in zip(steps, _holders(binding, queue, steps), strict=True):
            yield holder is not None and binding.find(step) is not None


def _holders(binding: Binding, queue: str, steps: Sequence[str]) -> Sequence[str | None]:
    try:
        return holders_of(binding.client.queue(queue), [step_id(*split_step(step)).key for step in steps])
    except QueueNotFound:
        return [None] * len(steps)
