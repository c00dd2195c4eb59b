"""What several steps returned, read a bucket at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from shardq.base.unreadable import UNREADABLE
from shardq.errors import MessageTooLarge
from shardq.tasks.collected import as_collected, goes_on
from shardq.tasks.errors import ResultMissing
from shardq.tasks.ids import split_step
from shardq.tasks.plans import Plan, Step, joined_up_to, parted, with_input
from shardq.tasks.results import MAX_RESULT_BYTES, Entry

if TYPE_CHECKING:
    from shardq.tasks.binding import Binding

__all__ = ["AT_ONCE", "Value", "body_of", "entries_of", "gather", "values_in"]

AT_ONCE = 16  # entries read together; each has up to a megabyte, and a larger one is read for itself
MOST_AT_ONCE = 64  # behind some that are small
SMALL_BYTES = 10_000


class Value(NamedTuple):
    """What a step returned, and the name of its task. One that is ``collected`` is read by :func:`read_collected`."""

    task: str
    value: bytes
    collected: bool = False


def gather(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int]) -> Iterator[Value]:
    """What these steps returned, in this order; those of buckets one after the other. Raises ResultMissing."""
    for identity, entry in entries_of(binding, [f"{workflow}#{number}" for number in numbers]):
        number = split_step(identity)[1]
        if entry is None or not goes_on(plan, number, entry):
            raise ResultMissing(f"step {identity} has no value: it was kept for {plan.keep:g} seconds")
        yield from values_in(binding, identity, plan.steps[number], entry)


def entries_of(binding: Binding, steps: Sequence[str]) -> Iterator[tuple[str, Entry | None]]:
    """What became of steps, in their order; None: nothing yet. Few are read at a time unless they are small."""
    count = AT_ONCE
    while steps:
        some, steps = steps[:count], steps[count:]
        found = binding.results.read_many(some)
        for step in some:
            yield step, found.get(step)
        small = all(len(entry.value) <= SMALL_BYTES for entry in found.values())
        count = MOST_AT_ONCE if small else AT_ONCE


def values_in(binding: Binding, identity: str, step: Step, entry: Entry) -> Iterator[Value]:
    """What a step that is done returned, or the steps of a bucket. Raises ResultMissing."""
    if step.collected and step.is_bucket:  # only an empty one is collected
        return
    if step.collected:
        value = b"" if entry.failure is not None else binding.results.value(identity, entry)
        yield Value(step.task, as_collected(value, entry.failure), collected=True)
        return
    if not step.is_bucket:
        yield Value(step.task, binding.results.value(identity, entry))
        return
    plan = _planned(binding, identity)
    if entry.apart or any(plan.steps[end].is_bucket for end in plan.ends):
        yield from gather(binding, identity, plan, plan.ends)
        return
    for end, value in zip(plan.ends, _values_of(identity, plan, entry), strict=True):
        yield Value(plan.steps[end].task, value, plan.steps[end].collected > 0)


def _values_of(bucket: str, plan: Plan, entry: Entry) -> Sequence[bytes]:
    with suppress(*UNREADABLE):
        values = parted(entry.value)
        if len(values) == len(plan.ends):
            return values
    raise ResultMissing(f"{bucket} has other values than those of its steps: a message of it was forged")


def body_of(binding: Binding, step: str, body: bytes) -> bytes:
    """The body of a step with what it takes, which did not fit into its message. Raises ResultMissing, MessageTooLarge.

    What the first steps of a bucket take is what the bucket takes.
    """
    workflow, number = split_step(step)
    own = _planned(binding, workflow).steps[number]
    waiting = own
    while not waiting.after:
        workflow, number = split_step(workflow)
        waiting = _planned(binding, workflow).steps[number]
    values = (each.value for each in gather(binding, workflow, _planned(binding, workflow), waiting.after))
    value = joined_up_to(values, MAX_RESULT_BYTES) if waiting.many else next(values)
    if value is None:
        raise MessageTooLarge(
            f"step {own.task!r} takes a list of what the steps before it returned, which has more than "
            f"{MAX_RESULT_BYTES:,} bytes: let them return less, such as where a result is stored, or read "
            "result.values() of the group"
        )
    return cast("bytes", with_input(msgspec.structs.replace(own, body=body), value))


def _planned(binding: Binding, workflow: str) -> Plan:
    if (plan := binding.plan(workflow)) is None:
        raise ResultMissing(f"the plan of {workflow} is not kept any more")
    return plan
