"""Going on with a workflow when a step of it has ended.

What became of a step is written once, and before its message is acked whoever ran it comes here. So of the steps for
which another one waits, each looks at the others after its own entry is written: the last one finds all of them, and
sends what waits. Two may find that at the same time: the message of a step has a unique key, and a step whose entry is
written is not run again. After a crash the step that had ended is delivered again, and comes here again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shardq.errors import InvalidMessage
from shardq.tasks.binding import Binding
from shardq.tasks.errors import Failure
from shardq.tasks.plans import Plan, joined, read_plan, with_input
from shardq.tasks.results import Decided, Entry, split_step, step_id

__all__ = ["Seen", "advance", "may_come", "start"]

_log = logging.getLogger(__name__)


def start(binding: Binding, workflow: str, body: bytes) -> None:
    """Store the plan of a workflow, and send the steps that wait for none. May be repeated."""
    plan = read_plan(body)
    binding.results.enter_plan(workflow, body, plan.keep)
    _send(binding, workflow, plan, {number: plan.steps[number].body for number in plan.first})


class Seen:
    """What was found and sent for steps that ended together: the others of them need not do it again."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.sent: set[str] = set()


def advance(binding: Binding, step: str, seen: Seen) -> None:
    """Send, or give up, the steps that waited for one that has ended. May be repeated."""
    workflow, number = split_step(step)
    plan = binding.plan(workflow)
    if plan is None:
        _log.warning("workflow %s is over: its plan was not kept for so long", workflow)
        return
    ended = [number]
    while ended:
        ended += _go_on(binding, workflow, plan, ended.pop(), seen)


def may_come(binding: Binding, step: str) -> bool:
    """True while a step that is not in its queue, and has not ended, may still be sent."""
    workflow, number = split_step(step)
    if binding.find(workflow) is not None:  # it has not begun yet
        return True
    plan = binding.plan(workflow)
    return plan is not None and any(
        _is_open(binding, step_id(workflow, other).text) for other in plan.steps[number].after
    )


def _is_open(binding: Binding, step: str) -> bool:
    """True while what waits for this step may still be sent."""
    if binding.find(step) is not None:
        return True
    return binding.results.read(step) is None and (may_come(binding, step) or binding.find(step) is not None)


def _go_on(binding: Binding, workflow: str, plan: Plan, number: int, seen: Seen) -> list[int]:
    """Send what waited for this step only; returns the steps that were given up because of it."""
    entry = binding.results.read(step_id(workflow, number).text)
    behind = plan.behind(number)
    if entry is None:
        return []
    if entry.state != "done":
        return _give_up(binding, workflow, plan, behind, _because(plan, number, entry))
    bodies: dict[int, bytes] = {}
    seen.values[step_id(workflow, number).text] = entry.value
    for other in behind:
        if step_id(workflow, other).text in seen.sent:
            continue
        values = _values(binding, workflow, plan.steps[other].after, number, seen.values)
        if values is not None:
            bodies[other] = with_input(
                plan.steps[other], joined(values) if plan.steps[other].many else values[0]
            )
    given_up: list[int] = []
    for other, body in bodies.items():
        try:
            _send(binding, workflow, plan, {other: body})
            seen.sent.add(step_id(workflow, other).text)
        except InvalidMessage as error:  # it is too large
            failed = Entry("failed", failure=Failure.of(error, 0))
            given_up += _give_up(binding, workflow, plan, [other], failed)
    return given_up


def _values(
    binding: Binding, workflow: str, after: Sequence[int], number: int, known: dict[str, bytes]
) -> list[bytes] | None:
    """What these steps returned; None while one of them has not ended, or when it did not return.

    It looks first at the one behind this, and stops at the first that has not ended: that one comes here later.
    """
    place = after.index(number)
    ids = [step_id(workflow, other).text for other in after]
    for step in (*ids[place:], *ids[:place]):
        if step not in known:
            entry = binding.results.read(step)
            if entry is None or entry.state != "done":
                return None
            known[step] = entry.value
    return [known[step] for step in ids]


def _give_up(binding: Binding, workflow: str, plan: Plan, numbers: Sequence[int], entry: Entry) -> list[int]:
    if numbers:
        binding.results.decide(
            [Decided(step_id(workflow, number).text, entry, plan.keep) for number in numbers]
        )
    return list(numbers)


def _because(plan: Plan, number: int, entry: Entry) -> Entry:
    if entry.failure is None:
        return entry
    text = f"step {number}, {plan.steps[number].task}, failed: {entry.failure}"
    why = text if entry.failure.kind != "StepFailed" else entry.failure.text
    return Entry(
        "failed", failure=Failure("StepFailed", why, entry.failure.traceback, entry.failure.deliveries)
    )


def _send(binding: Binding, workflow: str, plan: Plan, bodies: dict[int, bytes]) -> None:
    by_queue: dict[str, list[int]] = {}
    for number in bodies:
        by_queue.setdefault(plan.steps[number].queue, []).append(number)
    for queue, numbers in by_queue.items():
        binding.send(
            queue,
            [plan.steps[each].message(workflow, each, plan.keep, bodies[each]) for each in numbers],
        )
