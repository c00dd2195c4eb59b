"""Groups of any size: a large one is cut into buckets, workflows of their own of some hundreds of steps each.

A bucket is one step of the workflow that it is in. It is done when its own steps are, and has an entry as every step
has. If there are many buckets, they are cut into buckets too. So whatever a worker looks at is small, and a group of
100,000 calls is a tree of three floors.

The plans of buckets are stored behind that of the workflow, in the large body of the message that begins it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from shardq.base.outgoing_message import DEFAULT_PRIORITY
from shardq.errors import MessageTooLarge
from shardq.tasks.plans import WORKFLOW, Plan, Step, read_plan, write_plan

__all__ = [
    "BUCKET_BYTES",
    "BUCKET_STEPS",
    "MAX_PLAN_BYTES",
    "Bucket",
    "bucket_of",
    "empty_bucket",
    "is_empty",
    "plans_of",
    "read_plans",
    "stream",
    "tasks_in",
]

BUCKET_STEPS = 200  # parts of a group that are not cut further
BUCKET_BYTES = 200_000  # of their arguments
MAX_PLAN_BYTES = 1_000_000
_LENGTH_BYTES = 4


class Bucket(NamedTuple):
    """The plan of a bucket as it is stored, and the buckets that are steps of it, by their numbers."""

    plan: bytes
    buckets: Mapping[int, Bucket]


def bucket_of(plan: Plan, buckets: Mapping[int, Bucket]) -> tuple[Step, Bucket]:
    """Steps as a bucket, and the step that it is. Raises MessageTooLarge."""
    first = plan.steps[plan.first[0]]
    takes = next((step.takes for step in plan.steps if step.takes is not None and not step.after), None)
    step = Step(task=WORKFLOW, queue=first.queue, body=b"", takes=takes, priority=first.priority)
    return step, Bucket(checked(write_plan(plan)), buckets)


def tasks_in(queue: str, steps: Sequence[Step], buckets: Mapping[int, Bucket]) -> set[str]:
    """The tasks that are sent to a queue, of the first bucket for all of them."""
    found = {step.task for step in steps if step.queue == queue and not step.is_bucket}
    if (bucket := next(iter(buckets.values()), None)) is not None:
        found |= tasks_in(queue, read_plan(bucket.plan).steps, bucket.buckets)
    return found


def empty_bucket(queue: str, keep: float) -> tuple[Step, Bucket]:
    """A bucket without steps, and the step that it is: it has ended when its message is received."""
    step = Step(task=WORKFLOW, queue=queue, body=b"", priority=DEFAULT_PRIORITY)
    return step, Bucket(write_plan(Plan((), keep, (), many=True)), {})


def is_empty(bucket: Bucket | None) -> bool:
    """True for :func:`empty_bucket`."""
    return bucket is not None and not read_plan(bucket.plan).steps


def checked(plan: bytes) -> bytes:
    """A plan that is not too large. Raises MessageTooLarge."""
    if len(plan) > MAX_PLAN_BYTES:
        raise MessageTooLarge(
            f"the arguments of the steps of a workflow that wait for each other, or of one call in a group, have "
            f"{len(plan):,} bytes, and may have {MAX_PLAN_BYTES:,}: store what is large elsewhere and send where it is"
        )
    return plan


def plans_of(path: str, bucket: Bucket) -> Iterator[tuple[str, bytes]]:
    """The plan under its path, then those of the buckets in it."""
    yield path, bucket.plan
    for number, each in bucket.buckets.items():
        yield from plans_of(f"{path}#{number}", each)


def stream(root: Bucket) -> BinaryIO:
    """All plans as a file that is made while it is read."""
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


_ENCODER = msgspec.msgpack.Encoder()
_FRAME = msgspec.msgpack.Decoder(tuple[str, bytes])
