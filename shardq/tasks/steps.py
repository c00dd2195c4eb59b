"""The steps of a workflow: reading the results of those before them, and sending them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from shardq.base.codec import UNREADABLE
from shardq.base.outgoing_message import OutgoingMessage
from shardq.client.queue_internals import placed
from shardq.errors import MessageTooLarge
from shardq.tasks.entries import MAX_RESULT_BYTES, Entry, split_step
from shardq.tasks.errors import Failure, ResultMissing, TaskFailed
from shardq.tasks.plans import (
    AssignedId,
    AssignedIds,
    Plan,
    Step,
    is_worth_assigning,
    joined_up_to,
    parted,
    with_input,
    write_assigned_ids,
)
from shardq.tasks.task_client import TaskClient

__all__ = [
    "Collected",
    "Value",
    "body_of",
    "bytes_left",
    "entries_of",
    "fitting",
    "gather",
    "inputs_of",
    "open_steps",
    "plan_of",
    "read_collected",
    "send_steps",
    "send_under_assigned_ids",
    "unblocks",
    "values_in",
]

T = TypeVar("T")

AT_ONCE = 16  # entries read together; each has up to a megabyte, and a larger one is read for itself
MOST_SMALL = 64  # behind some that are small
SMALL_BYTES = 10_000
HEADER_BYTES = 2_000  # that are left for the headers of a step beside what it takes
MOST_BYTES = 1_000_000  # of the bodies of steps that are sent in one bundle
_ENCODER = msgspec.msgpack.Encoder()


class Collected(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """One call of a group with ``errors="collect"``: the ``value`` that it returned, or its ``failure``.

    A step that follows such a group takes a list of these.

    >>> from shardq.tasks import Tasks, chord
    >>> tasks = Tasks(url)
    >>> @tasks.task(retry=1)
    ... def divide(number: int) -> float:
    ...     return 6 / number
    >>> @tasks.task
    ... def report(parts: list[Collected[float]]) -> str:
    ...     return ", ".join(part.failure.kind if part.failure else str(part.value) for part in parts)
    >>> parts = [divide.signature(2), divide.signature(0)]
    >>> result = chord(parts, report.then(), errors="collect").send()
    >>> tasks.drain().dead_lettered, result.get()
    (1, '3.0, ZeroDivisionError')
    """

    value: T | None = None
    failure: Failure | None = None

    def get(self) -> T:
        """Return the value. Raises TaskFailed when there is none."""
        if self.failure is not None:
            raise TaskFailed(f"a task of a group failed: {self.failure}", self.failure)
        return cast("T", self.value)


def unblocks(plan: Plan, number: int, entry: Entry | None) -> bool:
    """Return whether steps that wait for a step continue, as far as they wait for this one.

    The failure of a part of a group that collects errors is collected. A failure before the group stops them.
    """
    if entry is None or entry.state == "cancelled":
        return False
    part = plan.steps[number].collected
    origin = number if entry.origin is None else entry.origin
    return entry.state == "done" or origin > number - part


def as_collected(value: bytes, failure: Failure | None) -> bytes:
    """Return the result of a step, or its failure, as it is stored in lists."""
    return _ENCODER.encode({"failure": failure} if failure is not None else {"value": msgspec.Raw(value)})


def read_collected(stored: bytes) -> tuple[bytes, Failure | None]:
    """Read :func:`as_collected`."""
    found = _COLLECTED.decode(stored)
    return bytes(found.value), found.failure


class _Stored(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: Failure | None = None


_COLLECTED = msgspec.msgpack.Decoder(_Stored)


class Value(NamedTuple):
    """The value that a step returned, and the name of its task.

    One that is ``collected`` is read by :func:`read_collected`.
    """

    task: str
    value: bytes
    collected: bool = False


def gather(client: TaskClient, workflow: str, plan: Plan, numbers: Sequence[int]) -> Iterator[Value]:
    """Return the results of these steps, in this order; those of buckets one after the other. Raises ResultMissing."""
    for identity, entry in entries_of(client, [f"{workflow}#{number}" for number in numbers]):
        number = split_step(identity)[1]
        if entry is None or not unblocks(plan, number, entry):
            raise ResultMissing(f"step {identity} has no value: it was kept for {plan.keep:g} seconds")
        yield from values_in(client, identity, plan.steps[number], entry)


def entries_of(client: TaskClient, steps: Sequence[str]) -> Iterator[tuple[str, Entry | None]]:
    """Return the outcomes of steps, in their order; None for a step without one.

    Few are read at a time unless they are small.
    """
    count = AT_ONCE
    while steps:
        some, steps = steps[:count], steps[count:]
        found = client.results.read_many(some)
        for step in some:
            yield step, found.get(step)
        small = all(len(entry.value) <= SMALL_BYTES for entry in found.values())
        count = MOST_SMALL if small else AT_ONCE


def values_in(client: TaskClient, identity: str, step: Step, entry: Entry) -> Iterator[Value]:
    """Return the result of a done step, or of the steps of a bucket. Raises ResultMissing."""
    if step.collected and step.is_bucket:  # only an empty one is collected
        return
    if step.collected:
        value = b"" if entry.failure is not None else client.results.value(identity, entry)
        yield Value(step.task, as_collected(value, entry.failure), collected=True)
        return
    if not step.is_bucket:
        yield Value(step.task, client.results.value(identity, entry))
        return
    plan = plan_of(client, identity)
    if entry.apart or any(plan.steps[end].is_bucket for end in plan.ends):
        yield from gather(client, identity, plan, plan.ends)
        return
    for end, value in zip(plan.ends, _values_of(identity, plan, entry), strict=True):
        yield Value(plan.steps[end].task, value, plan.steps[end].collected > 0)


def _values_of(bucket: str, plan: Plan, entry: Entry) -> Sequence[bytes]:
    with suppress(*UNREADABLE):
        values = parted(entry.value)
        if len(values) == len(plan.ends):
            return values
    raise ResultMissing(f"{bucket} has other values than those of its steps: a message of it was forged")


def body_of(client: TaskClient, step: str, body: bytes) -> bytes:
    """Return the body of a step with its values, which did not fit into its message.

    The first steps of a bucket take the values that the bucket takes. Raises ResultMissing, MessageTooLarge.
    """
    workflow, number = split_step(step)
    own = plan_of(client, workflow).steps[number]
    waiting = own
    while not waiting.after:
        workflow, number = split_step(workflow)
        waiting = plan_of(client, workflow).steps[number]
    values = (each.value for each in gather(client, workflow, plan_of(client, workflow), waiting.after))
    value = joined_up_to(values, MAX_RESULT_BYTES) if waiting.many else next(values)
    if value is None:
        raise MessageTooLarge(
            f"step {own.task!r} takes a list of what the steps before it returned, which has more than "
            f"{MAX_RESULT_BYTES:,} bytes: let them return less, such as where a result is stored, or read "
            "result.values() of the group"
        )
    return cast("bytes", with_input(msgspec.structs.replace(own, body=body), value))


def plan_of(client: TaskClient, workflow: str) -> Plan:
    """Return the plan of a workflow or bucket that has begun. Raises ResultMissing when it is kept no longer."""
    if (plan := client.plan(workflow)) is None:
        raise ResultMissing(f"the plan of {workflow} is not kept any more")
    return plan


def inputs_of(client: TaskClient, plan: Plan, value: bytes | None) -> dict[int, bytes | None]:
    """Return the bodies of the steps that wait for none, of which some take the values of their bucket."""
    return {
        number: with_input(plan.steps[number], fitting(client, plan.steps[number], value))
        for number in plan.first
    }


def send_steps(client: TaskClient, workflow: str, plan: Plan, bodies: Mapping[int, bytes | None]) -> None:
    """Store the messages of steps, those of one queue together. Those that are in their queue stay as they are.

    A step without a body takes arguments that do not fit into its message: its worker reads them.

    A queue with bounds may take some of them only. Then this is repeated, and leaves out those that have ended.
    """
    for queue, numbers in plan.by_queue(bodies).items():
        tasks = {plan.steps[number].task for number in numbers}
        if len(numbers) > 1 and client.settings(queue, tasks).is_bounded:
            numbers = open_steps(client, workflow, numbers)  # noqa: PLW2901
        client.send(
            queue,
            [plan.steps[each].message(workflow, each, plan.keep, bodies[each]) for each in numbers],
        )


def open_steps(client: TaskClient, workflow: str, numbers: Sequence[int]) -> list[int]:
    """Return the steps that have not ended."""
    ended = client.entered_steps(workflow, numbers)
    return [number for number in numbers if number not in ended]


def fitting(client: TaskClient, step: Step, value: bytes | None) -> bytes | None:
    """Return the values that a step takes, if they fit into its message."""
    if value is None or step.takes is None:
        return value
    return value if len(value) <= bytes_left(client, step) else None


def bytes_left(client: TaskClient, step: Step) -> int:
    """Return how many bytes the message of a step has for its values."""
    return client.settings(step.queue, [step.task]).max_message_bytes - len(step.body) - HEADER_BYTES


def send_under_assigned_ids(
    client: TaskClient, workflow: str, plan: Plan, bodies: Mapping[int, bytes | None]
) -> bool:
    """Store the messages of first steps under ids that are written down; False when they are to be sent otherwise.

    A step that another one sends has a unique key, which costs as much as its message. The first steps are sent by the
    worker that begins the workflow. So their messages are planned, their ids are written once as an entry, and they
    are stored under these ids in bundles. The begin may be repeated often and by any worker. A store leaves alone the
    messages that it has, and those that were finished in the last minutes. A worker that repeats it later than that
    checks which are there, and which have ended, and sends the others with keys.

    May be repeated. Raises RepeatTooLate when they may have been stored more than 14 minutes ago.
    """
    if not _is_worth_it(client, plan, bodies):
        return False
    messages = {
        number: msgspec.structs.replace(
            plan.steps[number].message(workflow, number, plan.keep, body), unique_key=None
        )
        for number, body in bodies.items()
    }
    by_queue = plan.by_queue(bodies)
    ids = client.results.assigned_ids(workflow) or _assign(client, workflow, plan, by_queue, messages)
    if ids is None or not ids.keys() >= bodies.keys():
        return False
    for queue, numbers in by_queue.items():
        client.send(queue, [_with_id(messages[number], ids[number]) for number in numbers])
    return True


def _is_worth_it(client: TaskClient, plan: Plan, bodies: Mapping[int, bytes | None]) -> bool:
    """Return True for some steps that fit into a bundle. A queue with bounds may take a part of them only."""
    return (
        is_worth_assigning(bodies)
        and sum(len(body or plan.steps[number].body) for number, body in bodies.items()) <= MOST_BYTES
        and all(plan.steps[number].group is None for number in bodies)
        and not any(
            client.settings(queue, {plan.steps[number].task for number in numbers}).is_bounded
            for queue, numbers in plan.by_queue(bodies).items()
        )
    )


def _assign(
    client: TaskClient,
    workflow: str,
    plan: Plan,
    by_queue: Mapping[str, Sequence[int]],
    messages: Mapping[int, OutgoingMessage],
) -> AssignedIds | None:
    """Write down where the messages are to be stored; returns the stored entry, maybe of another worker."""
    planned: AssignedIds = {}
    for queue, numbers in by_queue.items():
        found = placed(client.queue(queue), [messages[number] for number in numbers])
        planned |= {
            number: AssignedId(str(each.id), each.due)
            for number, each in zip(numbers, found, strict=True)
            if each.due is not None
        }
    client.results.enter_assigned_ids(workflow, write_assigned_ids(planned), plan.keep)
    return client.results.assigned_ids(workflow)


def _with_id(message: OutgoingMessage, assigned: AssignedId) -> OutgoingMessage:
    return msgspec.structs.replace(message, id=assigned.id, due=assigned.due, delay=0.0)
