"""Beginning a workflow, or a bucket of one: the steps that wait for none are sent."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shardq.message import Message
from shardq.tasks.advancing import send_steps
from shardq.tasks.binding import Binding
from shardq.tasks.buckets import read_plans
from shardq.tasks.errors import ResultMissing
from shardq.tasks.plans import Plan, read_plan, with_input, write_plan

__all__ = ["start_bucket", "start_workflow"]


def start_workflow(binding: Binding, message: Message) -> None:
    """Store the plans of a workflow, and send the steps that wait for none. May be repeated."""
    plans = _plans(message)
    _, plan = next(plans)
    binding.results.enter_plans([(message.id, write_plan(plan))], plan.keep)
    binding.results.enter_plans(
        (
            (message.id + path, write_plan(msgspec.structs.replace(each, keep=plan.keep)))
            for path, each in plans
        ),
        plan.keep,
    )
    send_steps(binding, message.id, plan, {number: plan.steps[number].body for number in plan.first})


def start_bucket(binding: Binding, bucket: str, value: bytes) -> None:
    """Send the steps of a bucket that wait for none; the value is for those that take one. May be repeated."""
    if (plan := binding.plan(bucket)) is None:
        raise ResultMissing(f"the workflow of {bucket} is over: its plan was not kept for so long")
    bodies = {number: with_input(plan.steps[number], value) for number in plan.first}
    send_steps(binding, bucket, plan, bodies)


def _plans(message: Message) -> Iterator[tuple[str, Plan]]:
    if message.large is None:
        yield "", read_plan(message.raw)
        return
    with message.open() as file:
        yield from read_plans(file)
