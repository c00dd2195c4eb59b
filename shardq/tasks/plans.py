"""The plan of a workflow: its steps, and which of them wait for which others. It is stored once, and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from shardq.base.outgoing_message import Headers, OutgoingMessage
from shardq.base.unreadable import UNREADABLE
from shardq.errors import InvalidMessage
from shardq.tasks.ids import step_id

__all__ = [
    "APART",
    "KEEP",
    "NAME",
    "RUN",
    "STEP",
    "TIMEOUT",
    "WORKFLOW",
    "Plan",
    "Step",
    "joined",
    "joined_up_to",
    "parted",
    "read_plan",
    "with_input",
    "write_plan",
]

NAME, KEEP, TIMEOUT, STEP = "task", "task-keep", "task-timeout", "task-step"
"""The headers of a task's message; the last one only of a step's: the id under which its result is stored."""

APART = "task-input-apart"
"""Of a step that takes what does not fit into its message: its worker reads what the steps before it returned."""

RUN = "task-run"
"""Of the message that begins another run of a workflow: the id of the run."""

WORKFLOW = "shardq.workflow"
"""What the message is called that begins a workflow, in place of a task's name."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a task that is sent when the steps before it are done; or a bucket, which has a plan of its own."""

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
        """Its message; without a body, what it takes is read by its worker.

        Two of them are never in the queue: its key is the step's own.
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
    """The steps of a workflow, and for how many seconds what became of each is kept. An empty bucket has no steps."""

    steps: tuple[Step, ...]
    keep: float
    ends: tuple[int, ...]  # the steps that none waits for: what they return is the result
    many: bool = False  # which is a list then
    name: str = ""  # by which it is listed; none of a bucket
    tail: bool = False  # it is what a task returned in place of a value

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

    def behind(self, number: int) -> list[int]:
        """The steps that wait for this one."""
        return [other for other, step in enumerate(self.steps) if number in step.after]


def _are_before(number: int, steps: Sequence[int]) -> bool:
    """True for steps before the one of this number, in their order: so no step waits for itself, or twice for one."""
    return all(one < other for one, other in pairwise((-1, *steps, number)))


def write_plan(plan: Plan) -> bytes:
    """The plan as bytes."""
    return _ENCODER.encode(plan)


def read_plan(stored: bytes) -> Plan:
    """Read :func:`write_plan`."""
    return _DECODER.decode(stored)


def with_input(step: Step, value: bytes | None) -> bytes | None:
    """The body of a step whose input is known. That of a bucket is the input itself, for its first steps.

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
    """The arguments of a step, as bytes. Raises InvalidMessage for what is none, as plans are forged."""
    try:
        return _ARGUMENTS.decode(step.body)
    except (*UNREADABLE, TypeError) as error:  # the latter of a step that has none
        raise InvalidMessage(f"the arguments of task {step.task!r} cannot be read: {error}") from error


def joined(values: Iterable[bytes]) -> bytes:
    """A list of what several steps returned."""
    return _ENCODER.encode([msgspec.Raw(value) for value in values])


def joined_up_to(values: Iterable[bytes], most: int) -> bytes | None:
    """A list of what several steps returned; None when it is longer. Only so much is drawn and kept."""
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


_LIST_BYTES = 5  # that say how long a list is
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Plan)
_VALUES = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ARGUMENTS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
