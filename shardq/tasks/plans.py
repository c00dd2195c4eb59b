"""The plan of a workflow: its steps, and which of them wait for which others. It is stored once, and never changed.

A large group is cut into buckets, workflows of their own of some hundreds of steps each. A bucket is one step of the
workflow that it is in. It is done when its own steps are, and has an entry as every step has. If there are many
buckets, they are cut into buckets too. So a worker reads little at a time, and a group of 100,000 calls is a tree of
three floors. The plans of buckets are stored behind that of the workflow, in the large body of the message that begins
it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import msgspec

from shardq.base.codec import UNREADABLE
from shardq.base.outgoing_message import DEFAULT_PRIORITY, Headers, OutgoingMessage
from shardq.errors import InvalidMessage, MessageTooLarge
from shardq.tasks.entries import APART, KEEP, NAME, STEP, TIMEOUT, WORKFLOW, step_id

__all__ = [
    "AssignedId",
    "Bucket",
    "Plan",
    "Step",
    "bucket_of",
    "check_plan",
    "empty_bucket",
    "grouped_step",
    "is_empty",
    "is_worth_assigning",
    "joined",
    "joined_up_to",
    "parted",
    "read_assigned_ids",
    "read_plan",
    "read_plans",
    "stream",
    "tasks_in",
    "with_input",
    "write_assigned_ids",
    "write_plan",
]

_LIST_BYTES = 5  # that say how long a list is
MAX_PLAN_BYTES = 1_000_000
_LENGTH_BYTES = 4
MIN_ASSIGNED = 8  # steps for which an entry is worth writing
_ENCODER = msgspec.msgpack.Encoder()
_VALUES = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ARGUMENTS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_FRAME = msgspec.msgpack.Decoder(tuple[str, bytes])


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a task that is sent when the steps before it are done; or a bucket, which has another plan."""

    task: str
    queue: str
    body: bytes  # its arguments, but for the one that is made of what the steps before it returned
    takes: str | None = None  # the name of that one
    after: tuple[int, ...] = ()  # the steps before it
    many: bool = False  # it takes a list of what they returned
    priority: int
    delay: float = 0.0
    ttl: float | None = None
    group: str | None = None
    timeout: float | None = None
    collected: int = 0  # of the last of a part of a group that collects errors: how many steps the part has

    @property
    def is_bucket(self) -> bool:
        """True for a part of a large group."""
        return self.task == WORKFLOW

    def message(self, workflow: str, number: int, keep: float, body: bytes | None) -> OutgoingMessage:
        """Make its message; without a body, its worker reads the values that it takes.

        The step's key keeps a second one out of the queue.
        """
        identity = step_id(workflow, number)
        headers: Headers = {NAME: self.task, KEEP: float(keep), STEP: identity.text}
        if body is None:
            body, headers[APART] = self.body, 1
        if self.timeout is not None:
            headers[TIMEOUT] = float(self.timeout)
        return OutgoingMessage(
            body=body,
            priority=self.priority,
            delay=self.delay,
            ttl=self.ttl,
            headers=headers,
            group=self.group,
            unique_key=identity.key,
        )


class Plan(msgspec.Struct, frozen=True):
    """The steps of a workflow, and the seconds for which the outcome of each is kept. An empty bucket has no steps."""

    steps: tuple[Step, ...]
    keep: float
    ends: tuple[int, ...]  # the steps that none waits for: what they return is the result
    many: bool = False  # which is a list then
    name: str = ""  # by which it is listed; none of a bucket
    replaces_task: bool = msgspec.field(
        default=False, name="tail"
    )  # it is what a task returned in place of a value

    def __post_init__(self) -> None:
        count = len(self.steps)
        named = [(self.ends, count), *((step.after, number) for number, step in enumerate(self.steps))]
        if bool(self.ends) != bool(self.steps) or not all(
            _are_before(number, steps) for steps, number in named
        ):
            raise ValueError(f"a plan of {count} steps names others")  # which is a failure to read it

    @property
    def first(self) -> list[int]:
        """The steps that wait for none."""
        return [number for number, step in enumerate(self.steps) if not step.after]

    def by_queue(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        """Return these steps, by the queues that they are sent to."""
        found: dict[str, list[int]] = {}
        for number in numbers:
            found.setdefault(self.steps[number].queue, []).append(number)
        return found

    def behind(self, number: int) -> list[int]:
        """Return the steps that wait for this one."""
        return [other for other, step in enumerate(self.steps) if number in step.after]


def _are_before(number: int, steps: Sequence[int]) -> bool:
    """Return True for steps before this one, in their order: so no step waits for itself, or twice for one."""
    return all(one < other for one, other in pairwise((-1, *steps, number)))


def write_plan(plan: Plan) -> bytes:
    """Return the plan as bytes."""
    return _ENCODER.encode(plan)


def read_plan(stored: bytes) -> Plan:
    """Read :func:`write_plan`."""
    return _DECODER.decode(stored)


def with_input(step: Step, value: bytes | None) -> bytes | None:
    """Return the body of a step whose input is known. That of a bucket is the input itself, for its first steps.

    None for a step whose input is None, because it is read by the step's worker. Raises InvalidMessage.
    """
    if step.takes is None:
        return step.body
    if value is None:
        return None
    if step.is_bucket:
        return value
    return _ENCODER.encode({**_given(step), step.takes: msgspec.Raw(value)})


def _given(step: Step) -> dict[str, msgspec.Raw]:
    """Return the arguments of a step, as bytes. Raises InvalidMessage for a body that is none, as of a forged plan."""
    try:
        return _ARGUMENTS.decode(step.body)
    except (*UNREADABLE, TypeError) as error:  # the latter of a step that has none
        raise InvalidMessage(f"the arguments of task {step.task!r} cannot be read: {error}") from error


def joined(values: Iterable[bytes]) -> bytes:
    """Return a list of what several steps returned."""
    return _ENCODER.encode([msgspec.Raw(value) for value in values])


def joined_up_to(values: Iterable[bytes], most: int) -> bytes | None:
    """Return a list of what several steps returned; None when it is longer. Only so much is drawn and kept."""
    kept: list[bytes] = []
    size = _LIST_BYTES
    for value in values:
        size += len(value)
        if size > most:
            return None
        kept.append(value)
    return joined(kept)


def parted(values: bytes) -> list[bytes]:
    """Read :func:`joined`."""
    return [bytes(value) for value in _VALUES.decode(values)]


_DECODER = msgspec.msgpack.Decoder(Plan)


class Bucket(NamedTuple):
    """The plan of a bucket as it is stored, and the buckets that are steps of it, by their numbers."""

    plan: bytes
    buckets: Mapping[int, Bucket]


def bucket_of(plan: Plan, buckets: Mapping[int, Bucket]) -> tuple[Step, Bucket]:
    """Return steps as a bucket, and the step that it is. Raises MessageTooLarge."""
    first = plan.steps[plan.first[0]]
    takes = next((step.takes for step in plan.steps if step.takes is not None and not step.after), None)
    step = Step(task=WORKFLOW, queue=first.queue, body=b"", takes=takes, priority=first.priority)
    return step, Bucket(check_plan(write_plan(plan)), buckets)


def tasks_in(queue: str, steps: Sequence[Step], buckets: Mapping[int, Bucket]) -> set[str]:
    """Return the tasks that are sent to a queue, of the first bucket for all of them."""
    found = {step.task for step in steps if step.queue == queue and not step.is_bucket}
    if (bucket := next(iter(buckets.values()), None)) is not None:
        found |= tasks_in(queue, read_plan(bucket.plan).steps, bucket.buckets)
    return found


def grouped_step(steps: Sequence[Step], buckets: Mapping[int, Bucket]) -> Step | None:
    """Return a step of a group, also one in a bucket; None if there is none."""
    for number, step in enumerate(steps):
        bucket = buckets.get(number)
        found = step if bucket is None else grouped_step(read_plan(bucket.plan).steps, bucket.buckets)
        if found is not None and found.group is not None:
            return found
    return None


def empty_bucket(queue: str, keep: float) -> tuple[Step, Bucket]:
    """Return a bucket without steps, and the step that it is: it has ended when its message is received."""
    step = Step(task=WORKFLOW, queue=queue, body=b"", priority=DEFAULT_PRIORITY)
    return step, Bucket(write_plan(Plan((), keep, (), many=True)), {})


def is_empty(bucket: Bucket | None) -> bool:
    """Return True for :func:`empty_bucket`."""
    return bucket is not None and not read_plan(bucket.plan).steps


def check_plan(plan: bytes) -> bytes:
    """Return a plan that is not too large. Raises MessageTooLarge."""
    if len(plan) > MAX_PLAN_BYTES:
        raise MessageTooLarge(
            f"the arguments of the steps of a workflow that wait for each other, or of one call in a group, have "
            f"{len(plan):,} bytes, and may have {MAX_PLAN_BYTES:,}: store large values elsewhere and send their place"
        )
    return plan


def plans_of(path: str, bucket: Bucket) -> Iterator[tuple[str, bytes]]:
    """Return the plan under its path, then those of the buckets in it."""
    yield path, bucket.plan
    for number, each in bucket.buckets.items():
        yield from plans_of(f"{path}#{number}", each)


def stream(root: Bucket) -> BinaryIO:
    """Return all plans as a file that is made while it is read."""
    return io.BufferedReader(_Frames(_frame(path, plan) for path, plan in plans_of("", root)))


def read_plans(file: BinaryIO) -> Iterator[tuple[str, Plan]]:
    """Read :func:`stream`: the plan of the workflow first, under the path ""."""
    while size := file.read(_LENGTH_BYTES):
        path, plan = _FRAME.decode(file.read(int.from_bytes(size, "big")))
        yield path, read_plan(plan)


def _frame(path: str, plan: bytes) -> bytes:
    content = _ENCODER.encode((path, plan))
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


class _Frames(io.RawIOBase):
    def __init__(self, frames: Iterable[bytes]) -> None:
        super().__init__()
        self._frames, self._left = iter(frames), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._left = self._left or next(self._frames, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


class AssignedId(msgspec.Struct, frozen=True, array_like=True):
    """The id of the message of a step, and when it is due."""

    id: str
    due: datetime


AssignedIds = dict[int, AssignedId]  # by the numbers of the steps


def is_worth_assigning(steps: Sized) -> bool:
    """Return False for so few first steps that each is sent with a key."""
    return len(steps) >= MIN_ASSIGNED


def write_assigned_ids(places: AssignedIds) -> bytes:
    """Return the entry, as it is stored."""
    return _ENCODER.encode(places)


def read_assigned_ids(stored: bytes) -> AssignedIds:
    """Read the entry with the places of the first steps."""
    return _ASSIGNED.decode(stored)


_ASSIGNED = msgspec.msgpack.Decoder(AssignedIds)
