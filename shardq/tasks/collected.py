"""What became of a call of a group that collects errors: its value, or why it failed."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import msgspec

from shardq.tasks.errors import Failure, TaskFailed
from shardq.tasks.plans import Plan
from shardq.tasks.results import Entry

__all__ = ["Collected", "as_collected", "goes_on", "read_collected"]

T = TypeVar("T")


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
        """The value. Raises TaskFailed when there is none."""
        if self.failure is not None:
            raise TaskFailed(f"a task of a group failed: {self.failure}", self.failure)
        return cast("T", self.value)


def goes_on(plan: Plan, number: int, entry: Entry | None) -> bool:
    """True when what waits for a step goes on, as far as it waits for this one.

    The failure of a part of a group that collects errors is collected. What failed before the group stops it.
    """
    if entry is None or entry.state == "cancelled":
        return False
    part = plan.steps[number].collected
    origin = number if entry.origin is None else entry.origin
    return entry.state == "done" or origin > number - part


def as_collected(value: bytes, failure: Failure | None) -> bytes:
    """What a step returned, or why it failed, as it is stored in lists."""
    return _ENCODER.encode({"failure": failure} if failure is not None else {"value": msgspec.Raw(value)})


def read_collected(stored: bytes) -> tuple[bytes, Failure | None]:
    """Read :func:`as_collected`."""
    found = _DECODER.decode(stored)
    return bytes(found.value), found.failure


class _Stored(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: Failure | None = None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Stored)
