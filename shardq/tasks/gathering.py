"""What several steps returned, read a bucket at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shardq.tasks.errors import ResultMissing
from shardq.tasks.plans import Plan, Step, parted
from shardq.tasks.results import Entry

if TYPE_CHECKING:
    from shardq.tasks.binding import Binding

__all__ = ["AT_ONCE", "Value", "gather", "values_in"]

AT_ONCE = 16  # entries that are read together; each has up to a megabyte


class Value(NamedTuple):
    """What a step returned, and the name of its task."""

    task: str
    value: bytes


def gather(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int]) -> Iterator[Value]:
    """What these steps returned, in this order; those of buckets one after the other. Raises ResultMissing."""
    for place in range(0, len(numbers), AT_ONCE):
        ids = [f"{workflow}#{number}" for number in numbers[place : place + AT_ONCE]]
        entries = binding.results.read_many(ids)
        for number, step in zip(numbers[place : place + AT_ONCE], ids, strict=True):
            if (entry := entries.get(step)) is None or entry.state != "done":
                raise ResultMissing(f"step {step} has no value: it was kept for {plan.keep:g} seconds")
            yield from values_in(binding, step, plan.steps[number], entry)


def values_in(binding: Binding, identity: str, step: Step, entry: Entry) -> Iterator[Value]:
    """What a step that is done returned, or the steps of a bucket. Raises ResultMissing."""
    if not step.is_bucket:
        yield Value(step.task, entry.value)
        return
    if (plan := binding.plan(identity)) is None:
        raise ResultMissing(f"the plan of {identity} is not kept any more")
    if entry.apart or any(plan.steps[end].is_bucket for end in plan.ends):
        yield from gather(binding, identity, plan, plan.ends)
        return
    for end, value in zip(plan.ends, parted(entry.value), strict=True):
        yield Value(plan.steps[end].task, value)
