"""Beginning a workflow, or a bucket of one: the steps that wait for none are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from shardq.errors import RepeatTooLate, ShardqError
from shardq.message import Message
from shardq.tasks.advancing import Seen, advance, inputs_of, open_steps, send_next, send_steps
from shardq.tasks.binding import Binding
from shardq.tasks.buckets import read_plans
from shardq.tasks.collected import goes_on
from shardq.tasks.errors import Failure, ResultMissing
from shardq.tasks.gathering import entries_of
from shardq.tasks.ids import in_run, run_of, split_step, step_id
from shardq.tasks.placing import sent_in_places
from shardq.tasks.plans import Plan, joined, read_plan, write_plan
from shardq.tasks.results import Decided, Entry

__all__ = ["give_up", "start_bucket", "start_run", "start_workflow"]


def start_workflow(binding: Binding, message: Message) -> None:
    """Store the plans of a workflow, and send the steps that wait for none. May be repeated."""
    plans = _plans(message)
    _, plan = next(plans)
    binding.results.enter_workflow(message.id, write_plan(plan), plan.keep)
    binding.results.enter_plans(
        (
            (message.id + path, write_plan(msgspec.structs.replace(each, keep=plan.keep)))
            for path, each in plans
        ),
        plan.keep,
    )
    _send_first(binding, message.id, plan, {number: plan.steps[number].body for number in plan.first})


def start_bucket(binding: Binding, bucket: str, value: bytes | None) -> None:
    """Send the steps of a bucket that wait for none; the value is for those that take one. May be repeated.

    Without a value, which is too large for a message, their workers read it. An empty bucket ends at once.
    """
    plan = _plan(binding, bucket)
    if not plan.steps:
        binding.results.decide([Decided(bucket, Entry("done", joined([])), plan.keep)])
        advance(binding, bucket, Seen({}))
        return
    if run_of(bucket):
        _start_rest(binding, bucket, plan, value)
        return
    _send_first(binding, bucket, plan, inputs_of(binding, plan, value))


def _send_first(binding: Binding, workflow: str, plan: Plan, bodies: Mapping[int, bytes | None]) -> None:
    try:
        if sent_in_places(binding, workflow, plan, bodies):
            return
    except RepeatTooLate:  # those that are there wait or run, and what has ended has an entry
        there = binding.find_steps(workflow, plan, list(bodies))
        rest = open_steps(binding, workflow, [number for number in bodies if number not in there])
        bodies = {number: bodies[number] for number in rest}
    send_steps(binding, workflow, plan, bodies)


def start_run(binding: Binding, run: str) -> None:
    """Begin another run of a workflow, which ends the ones before it. May be repeated."""
    plan, before = binding.kept_plan(run), in_run(run, run_of(run) - 1)
    if plan is None:  # what is done may be over too by now, and would run again
        raise _over(run)
    if run_of(before) and not all(binding.results.has_begun([before])):
        raise _over(before)  # nobody has retried that: the message was forged
    binding.results.enter_run(run, plan.keep)
    _start_rest(binding, run, plan, b"")


def give_up(binding: Binding, workflow: str, error: ShardqError) -> None:
    """Let all steps of a workflow fail that cannot begin, so that whoever waits for it is told. May be repeated."""
    if (plan := binding.plan(workflow)) is not None:
        failed = Entry("failed", failure=Failure.of(error, 0))
        steps = [step_id(workflow, number).text for number in range(len(plan.steps))]
        binding.results.decide([Decided(step, failed, plan.keep) for step in steps])


def _start_rest(binding: Binding, workflow: str, plan: Plan, value: bytes | None) -> None:
    """Send the steps of which nothing stands, and that wait for none which is not done."""
    stands = _standing(binding, workflow, plan)
    bodies, inputs = dict[int, bytes | None](), inputs_of(binding, plan, value)
    for number, step in enumerate(plan.steps):
        if number in stands or not all(goes_on(plan, other, stands.get(other)) for other in step.after):
            continue
        if step.after:
            for failed in send_next(binding, workflow, plan, number) or ():
                advance(binding, failed, Seen({}))
        else:
            bodies[number] = inputs[number]
    send_steps(binding, workflow, plan, bodies)
    if all(end in stands for end in plan.ends):  # whoever ended the last one did not come to the bucket
        advance(binding, f"{workflow}#{plan.ends[0]}", Seen({}))


def _standing(binding: Binding, workflow: str, plan: Plan) -> dict[int, Entry]:
    """What stands of the steps, in this run or one before, without the values."""
    found = entries_of(binding, [f"{workflow}#{number}" for number in range(len(plan.steps))])
    return {
        split_step(step)[1]: msgspec.structs.replace(entry, value=b"")
        for step, entry in found
        if entry is not None
    }


def _plan(binding: Binding, workflow: str) -> Plan:
    if (plan := binding.plan(workflow)) is None:
        raise _over(workflow)
    return plan


def _over(workflow: str) -> ResultMissing:
    return ResultMissing(f"the workflow of {workflow} is over: its plan was not kept for so long")


def _plans(message: Message) -> Iterator[tuple[str, Plan]]:
    if message.large is None:
        yield "", read_plan(message.raw)
        return
    with message.open() as file:
        yield from read_plans(file)
