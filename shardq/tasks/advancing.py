"""Going on with a workflow when a step of it has ended.

What became of a step is written once, and before its message is acked whoever ran it comes here. So of the steps for
which another one waits, each looks at the others after its own entry is written: the last one finds all of them, and
sends what waits. Two may find that at the same time: the message of a step has a unique key, and a step whose entry is
written is not run again. After a crash the step that had ended is delivered again, and comes here again.

The last step of a bucket decides the bucket's entry in the same way, and goes on with what the bucket is a step of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from shardq.errors import InvalidMessage, InvalidName, InvalidSetting, MessageTooLarge, UnsupportedByStore
from shardq.tasks.binding import Binding
from shardq.tasks.collected import goes_on
from shardq.tasks.errors import Failure, ResultMissing
from shardq.tasks.gathering import entries_of, gather, values_in
from shardq.tasks.ids import split_step
from shardq.tasks.plans import Plan, Step, joined, joined_up_to, with_input
from shardq.tasks.results import MAX_RESULT_BYTES, Decided, Entry

__all__ = ["UNSENDABLE", "Seen", "advance", "inputs_of", "open_steps", "send_next", "send_steps"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

UNSENDABLE = (InvalidMessage, InvalidName, InvalidSetting, UnsupportedByStore)
"""Of a step that is too large, in a group where the store has none, or forged: it could not be sent later either."""

KEPT_BYTES = 250_000  # of the values of a bucket's steps, which are repeated in its entry up to this size
HEADER_BYTES = 2_000  # that are left for the headers of a step beside what it takes
MOST_AT_ONCE = 256  # entries of which one request asks whether they are there


class Seen:
    """What was found and sent for steps that ended together: the others of them need not do it again.

    ``ended`` are these steps, whose entries are all written, and what became of each as far as its worker knows.
    ``sent`` is what was sent or closed, and of which all that followed from it is done too. What waits for a step that
    was found to be open stays blocked for them: whoever ends that step comes later, and finds all of them. That does
    not hold for the bucket that one of them has closed after the look.
    """

    def __init__(self, ended: dict[str, Entry]) -> None:
        self.ended, self.present = ended, set(ended)
        self.blocked: set[str] = set()
        self.sent: set[str] = set()


def advance(binding: Binding, step: str, seen: Seen) -> None:
    """Send, or give up, the steps that waited for one that has ended.

    May be repeated. What it did before it was cut off counts as not done: the rest of it may be what was not.
    """
    ended, sent = [step], set[str]()
    while ended:
        last = ended.pop()
        if "#" in last:  # nothing waits for a task that is no step
            ended += _go_on(binding, last, seen, sent)
    seen.sent |= sent


def inputs_of(binding: Binding, plan: Plan, value: bytes | None) -> dict[int, bytes | None]:
    """The bodies of the steps that wait for none, of which some take what the bucket takes that they are in."""
    return {
        number: with_input(plan.steps[number], _fitting(binding, plan.steps[number], value))
        for number in plan.first
    }


def send_steps(binding: Binding, workflow: str, plan: Plan, bodies: Mapping[int, bytes | None]) -> None:
    """Store the messages of steps, those of one queue together. Those that are in their queue stay as they are.

    A step without a body takes what does not fit into its message: its worker reads that.

    A queue with bounds may take some of them only. Then this is repeated, and leaves out those that have ended.
    """
    by_queue: dict[str, list[int]] = {}
    for number in bodies:
        by_queue.setdefault(plan.steps[number].queue, []).append(number)
    for queue, numbers in by_queue.items():
        tasks = {plan.steps[number].task for number in numbers}
        if len(numbers) > 1 and binding.settings(queue, tasks).is_bounded:
            numbers = open_steps(binding, workflow, numbers)  # noqa: PLW2901
        binding.send(
            queue,
            [plan.steps[each].message(workflow, each, plan.keep, bodies[each]) for each in numbers],
        )


def open_steps(binding: Binding, workflow: str, numbers: Sequence[int]) -> list[int]:
    """The steps that have not ended."""
    return [
        number
        for some in _cut(numbers, MOST_AT_ONCE)
        for number, entered in zip(
            some, binding.results.entered([f"{workflow}#{each}" for each in some]), strict=True
        )
        if not entered
    ]


def _go_on(binding: Binding, step: str, seen: Seen, sent: set[str]) -> list[str]:
    """Do what waited for this step only, and add it to ``sent``; returns the steps that have ended by that."""
    workflow, number = split_step(step)
    plan = binding.plan(workflow)
    if plan is None:
        _log.warning("workflow %s is over: its plan was not kept for so long", workflow)
        return []
    if number >= len(plan.steps):
        _log.warning("workflow %s has no step %d: its message was forged", workflow, number)
        return []
    entry = seen.ended.get(step)
    if entry is None or entry.state != "done":  # another outcome may have been written first
        entry = binding.results.read(step)
    if entry is None:
        return []
    bucket = workflow if ("#" in workflow or plan.tail) and number in plan.ends else None
    behind = plan.behind(number)
    if not goes_on(plan, number, entry):
        told = _because(plan, number, entry)
        given_up = [f"{workflow}#{other}" for other in behind]
        if bucket:
            _decide(binding, [bucket], msgspec.structs.replace(told, origin=None), plan.keep)
        return _decide(binding, given_up, told, plan.keep) + ([bucket] if bucket else [])
    ended: list[str] = []
    for other in behind:
        identity, after = f"{workflow}#{other}", plan.steps[other].after
        if identity in seen.sent or not _all_ended(binding, workflow, after, number, seen, identity):
            continue
        if (failed := send_next(binding, workflow, plan, other)) is not None:
            sent.add(identity)
            ended += failed
    if bucket and bucket not in seen.sent and _all_ended(binding, workflow, plan.ends, number, seen, bucket):
        ended += _closed(binding, bucket, plan, sent)
    return ended


def send_next(binding: Binding, workflow: str, plan: Plan, other: int) -> list[str] | None:
    """Send a step if all before it are done, else None; returns it when it cannot be sent, and has failed by that."""
    try:
        if not _is_ready(binding, workflow, plan, other):
            return None
        value = _input(binding, workflow, plan, other)
        send_steps(binding, workflow, plan, {other: with_input(plan.steps[other], value)})
    except ResultMissing:
        return None
    except UNSENDABLE as error:
        failed = Entry("failed", failure=Failure.of(error, 0))
        return _decide(binding, [f"{workflow}#{other}"], failed, plan.keep)
    return []


def _is_ready(binding: Binding, workflow: str, plan: Plan, other: int) -> bool:
    """True when all before a step are done, as far as its input does not tell that."""
    step = plan.steps[other]
    return step.takes is not None or _are_done(binding, workflow, plan, step.after)


def _input(binding: Binding, workflow: str, plan: Plan, other: int) -> bytes | None:
    """What a step takes; None when it is too large for its message. Raises ResultMissing when not all is done."""
    step = plan.steps[other]
    if step.takes is None:
        return b""
    if not step.many:
        identity = f"{workflow}#{step.after[0]}"
        entry = binding.results.read(identity)
        if entry is None or entry.state != "done":
            raise ResultMissing(f"step {identity} has no value")
        return None if entry.large else _fitting(binding, step, entry.value)
    values = (each.value for each in gather(binding, workflow, plan, step.after))
    value = joined_up_to(values, _room(binding, step))
    if value is None and not _are_done(binding, workflow, plan, step.after):
        raise ResultMissing(f"step {workflow}#{other} waits for others")
    return value


def _fitting(binding: Binding, step: Step, value: bytes | None) -> bytes | None:
    """What a step takes, if it fits into its message."""
    if value is None or step.takes is None:
        return value
    return value if len(value) <= _room(binding, step) else None


def _room(binding: Binding, step: Step) -> int:
    """The bytes that there are in the message of a step for what it takes."""
    return binding.settings(step.queue, [step.task]).max_message_bytes - len(step.body) - HEADER_BYTES


def _are_done(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int]) -> bool:
    found = entries_of(binding, [f"{workflow}#{number}" for number in numbers])
    return all(goes_on(plan, number, entry) for number, (_, entry) in zip(numbers, found, strict=True))


def _closed(binding: Binding, bucket: str, plan: Plan, sent: set[str]) -> list[str]:
    """Write the entry of a bucket all of whose ends have ended. It repeats their values if they are small.

    That of a task which returned a workflow has what that came to, of any size.
    """
    values: list[bytes] | None = (
        None if plan.tail or any(plan.steps[end].is_bucket for end in plan.ends) else []
    )
    partial, size = False, 0
    for identity, entry in entries_of(binding, [f"{bucket}#{end}" for end in plan.ends]):
        number = split_step(identity)[1]
        if entry is None or not goes_on(plan, number, entry):
            return []
        partial |= entry.partial or entry.state == "failed"
        if values is None or entry.large:
            values = None
            continue
        (found,) = values_in(binding, identity, plan.steps[number], entry)
        values.append(found.value)
        size += len(found.value)
        values = None if size > KEPT_BYTES else values
    sent.add(bucket)
    if plan.tail:
        ended = _of_tail(binding, bucket, plan)
    else:
        ended = Entry("done", apart=True) if values is None else Entry("done", joined(values))
    return _decide(binding, [bucket], msgspec.structs.replace(ended, partial=partial), plan.keep)


def _of_tail(binding: Binding, task: str, plan: Plan) -> Entry:
    """What became of a task that returned a workflow whose ends are done. It has failed if that is kept no longer."""
    try:
        return _came_to(binding, task, plan)
    except (MessageTooLarge, ResultMissing) as error:
        return Entry("failed", failure=Failure.of(error, 0))


def _came_to(binding: Binding, task: str, plan: Plan) -> Entry:
    if not plan.many:
        entry = binding.results.read(identity := f"{task}#{plan.ends[0]}")
        if entry is None:
            raise ResultMissing(f"what step {identity} returned is not kept any more")
        return Entry("done", entry.value, large=entry.large)
    value = joined_up_to((each.value for each in gather(binding, task, plan, plan.ends)), MAX_RESULT_BYTES)
    if value is None:
        raise MessageTooLarge(
            f"the list of what the calls returned that task {task} returned has more than {MAX_RESULT_BYTES:,} bytes: "
            "let them return less, such as where a result is stored"
        )
    return Entry("done", value)


def _all_ended(
    binding: Binding, workflow: str, numbers: Sequence[int], number: int, seen: Seen, waits: str
) -> bool:
    """True when these steps have entries, as far as can be seen with few requests.

    It looks first at the one behind this, and stops at the first that has not ended: that one comes here later.
    """
    if waits in seen.blocked and f"{workflow}#{number}" in seen.ended:
        return False
    place = numbers.index(number)
    ids = [f"{workflow}#{other}" for other in (*numbers[place:], *numbers[:place])]
    unknown, count = [each for each in ids if each not in seen.present], 1
    while unknown:
        some, unknown = unknown[:count], unknown[count:]
        entered = binding.results.entered(some)
        seen.present.update(each for each, is_there in zip(some, entered, strict=True) if is_there)
        if not all(entered):
            seen.blocked.add(waits)
            return False
        count = min(4 * count, MOST_AT_ONCE)
    return True


def _decide(binding: Binding, steps: Sequence[str], entry: Entry, keep: float) -> list[str]:
    if steps:
        binding.results.decide([Decided(step, entry, keep) for step in steps])
    return list(steps)


def _because(plan: Plan, number: int, entry: Entry) -> Entry:
    origin = number if entry.origin is None else entry.origin
    if entry.failure is None:
        return entry
    call = entry.failure.call or plan.steps[number].task
    text = f"step {number}, {call}, failed: {entry.failure}"
    why = text if entry.failure.kind != "StepFailed" else entry.failure.text
    failure = Failure("StepFailed", why, entry.failure.traceback, entry.failure.deliveries)
    return Entry("failed", failure=failure, origin=origin)


def _cut(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[place : place + size] for place in range(0, len(items), size))
