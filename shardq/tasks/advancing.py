"""Beginning a workflow, and continuing it when a step of it has ended.

The result of a step is written once, and before its message is acked its worker comes here. So of the steps for which
another one waits, each reads the others after its own entry is written. The last one finds all of them, and sends the
waiting step. Two may find that at the same time. The message of a step has a unique key, and a step whose entry is
written is not run again. After a crash the step that had ended is delivered again, and comes here again.

The last step of a bucket decides the bucket's entry in the same way, and continues with the step that the bucket is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shardq.base.log import Log
from shardq.core.message import Message
from shardq.errors import (
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    MessageTooLarge,
    RepeatTooLate,
    ShardqError,
    UnsupportedByStore,
)
from shardq.tasks.entries import MAX_RESULT_BYTES, Decided, Entry, in_run, run_of, split_step, step_id
from shardq.tasks.errors import Failure, ResultMissing
from shardq.tasks.plans import Plan, joined, joined_up_to, read_plan, read_plans, with_input, write_plan
from shardq.tasks.steps import (
    bytes_left,
    entries_of,
    fitting,
    gather,
    inputs_of,
    open_steps,
    plan_of,
    send_steps,
    send_under_assigned_ids,
    unblocks,
    values_in,
)
from shardq.tasks.task_client import TaskClient

__all__ = ["Seen", "advance", "give_up", "start_bucket", "start_run", "start_workflow"]

_log = Log(__name__)

UNSENDABLE = (InvalidMessage, InvalidName, InvalidSetting, UnsupportedByStore)
"""Of a step that is too large, in a group where the store has none, or forged: it could not be sent later either."""

KEPT_BYTES = 250_000  # of the values of a bucket's steps, which are repeated in its entry up to this size
MOST_AT_ONCE = 256  # entries of which one request asks whether they are there


def start_workflow(client: TaskClient, message: Message) -> None:
    """Store the plans of a workflow, and send the steps that wait for none. May be repeated."""
    plans = _plans_in(message)
    _, plan = next(plans)
    client.results.enter_workflow(message.id, write_plan(plan), plan.keep)
    client.results.enter_plans(
        (
            (message.id + path, write_plan(msgspec.structs.replace(each, keep=plan.keep)))
            for path, each in plans
        ),
        plan.keep,
    )
    _send_first(client, message.id, plan, {number: plan.steps[number].body for number in plan.first})


def start_bucket(client: TaskClient, bucket: str, value: bytes | None) -> None:
    """Send the steps of a bucket that wait for none; the value is for those that take one. May be repeated.

    Without a value, which is too large for a message, their workers read it. An empty bucket ends at once.
    """
    plan = plan_of(client, bucket)
    if not plan.steps:
        client.results.decide([Decided(bucket, Entry("done", joined([])), plan.keep)])
        advance(client, bucket, Seen({}))
        return
    if run_of(bucket):
        _start_rest(client, bucket, plan, value)
        return
    _send_first(client, bucket, plan, inputs_of(client, plan, value))


def _send_first(client: TaskClient, workflow: str, plan: Plan, bodies: Mapping[int, bytes | None]) -> None:
    try:
        if send_under_assigned_ids(client, workflow, plan, bodies):
            return
    except RepeatTooLate:  # those that are there wait or run, and what has ended has an entry
        there = client.find_steps(workflow, plan, list(bodies))
        rest = open_steps(client, workflow, [number for number in bodies if number not in there])
        bodies = {number: bodies[number] for number in rest}
    send_steps(client, workflow, plan, bodies)


def start_run(client: TaskClient, run: str) -> None:
    """Begin another run of a workflow, which ends the ones before it. May be repeated."""
    plan, before = client.kept_plan(run), in_run(run, run_of(run) - 1)
    if plan is None:  # what is done may be over too by now, and would run again
        raise _over(run)
    if run_of(before) and not all(client.results.has_begun([before])):
        raise _over(before)  # that was never retried: the message was forged
    client.results.enter_run(run, plan.keep)
    _start_rest(client, run, plan, b"")


def give_up(client: TaskClient, workflow: str, error: ShardqError) -> None:
    """Let all steps of a workflow fail that cannot begin, so that its waiters are notified. May be repeated."""
    if (plan := client.plan(workflow)) is not None:
        failed = Entry("failed", failure=Failure.of(error, 0))
        steps = [step_id(workflow, number).text for number in range(len(plan.steps))]
        client.results.decide([Decided(step, failed, plan.keep) for step in steps])


def _start_rest(client: TaskClient, workflow: str, plan: Plan, value: bytes | None) -> None:
    """Send the steps that have no entry, and wait for no step that is not done."""
    found = entries_of(client, [f"{workflow}#{number}" for number in range(len(plan.steps))])
    known = {  # in this run or one before; values may be large
        number: msgspec.structs.replace(entry, value=b"") for number, (_, entry) in enumerate(found) if entry
    }
    bodies, inputs = dict[int, bytes | None](), inputs_of(client, plan, value)
    for number, step in enumerate(plan.steps):
        if number in known or not all(unblocks(plan, other, known.get(other)) for other in step.after):
            continue
        if step.after:
            for failed in send_next(client, workflow, plan, number) or ():
                advance(client, failed, Seen({}))
        else:
            bodies[number] = inputs[number]
    send_steps(client, workflow, plan, bodies)
    if all(end in known for end in plan.ends):  # the worker that ended the last one did not reach the bucket
        advance(client, f"{workflow}#{plan.ends[0]}", Seen({}))


def _over(workflow: str) -> ResultMissing:
    return ResultMissing(f"the workflow of {workflow} has expired: its plan was not kept for so long")


def _plans_in(message: Message) -> Iterator[tuple[str, Plan]]:
    if message.large is None:
        yield "", read_plan(message.raw)
        return
    with message.open() as file:
        yield from read_plans(file)


class Seen:
    """The entries and sends for steps that ended together: the others of them need not do it again.

    ``ended`` are these steps, whose entries are all written, with the entry of each as far as its worker knows.
    ``sent`` are the steps that were sent or closed, and of which all that followed from it is done too. A step that
    waits for an open step stays blocked for them. The worker that ends it comes later, and finds all of them. That
    does not hold for the bucket that one of them has closed after the read.
    """

    def __init__(self, ended: dict[str, Entry]) -> None:
        self.ended, self.present = ended, set(ended)
        self.blocked: set[str] = set()
        self.sent: set[str] = set()


def advance(client: TaskClient, step: str, seen: Seen) -> None:
    """Send, or give up, the steps that waited for one that has ended.

    May be repeated. The work of a call that was cut off counts as not done: its rest may be missing.
    """
    ended, sent = [step], set[str]()
    while ended:
        last = ended.pop()
        if "#" in last:  # nothing waits for a task that is not a step
            ended += _continue_workflow(client, last, seen, sent)
    seen.sent |= sent


def _continue_workflow(client: TaskClient, step: str, seen: Seen, sent: set[str]) -> list[str]:
    """Do what waited for this step only, and add it to ``sent``; returns the steps that have ended by that."""
    workflow, number = split_step(step)
    plan = client.plan(workflow)
    if plan is None:
        _log.warning("workflow %s has expired: its plan was not kept for so long", workflow)
        return []
    if number >= len(plan.steps):
        _log.warning("workflow %s has no step %d: its message was forged", workflow, number)
        return []
    entry = seen.ended.get(step)
    if entry is None or entry.state != "done":  # another outcome may have been written first
        entry = client.results.read(step)
    if entry is None:
        return []
    bucket = workflow if ("#" in workflow or plan.replaces_task) and number in plan.ends else None
    behind = plan.behind(number)
    if not unblocks(plan, number, entry):
        outcome = _because(plan, number, entry)
        given_up = [f"{workflow}#{other}" for other in behind]
        if bucket:
            _decide(client, [bucket], msgspec.structs.replace(outcome, origin=None), plan.keep)
        return _decide(client, given_up, outcome, plan.keep) + ([bucket] if bucket else [])
    ended: list[str] = []
    for other in behind:
        identity, after = f"{workflow}#{other}", plan.steps[other].after
        if identity in seen.sent or not _all_ended(client, workflow, after, number, seen, identity):
            continue
        if (failed := send_next(client, workflow, plan, other)) is not None:
            sent.add(identity)
            ended += failed
    if bucket and bucket not in seen.sent and _all_ended(client, workflow, plan.ends, number, seen, bucket):
        ended += _closed(client, bucket, plan, sent)
    return ended


def send_next(client: TaskClient, workflow: str, plan: Plan, other: int) -> list[str] | None:
    """Send a step if all before it are done, else None; returns it when it cannot be sent, and has failed by that."""
    try:
        if not _is_ready(client, workflow, plan, other):
            return None
        value = _input(client, workflow, plan, other)
        send_steps(client, workflow, plan, {other: with_input(plan.steps[other], value)})
    except ResultMissing:
        return None
    except UNSENDABLE as error:
        failed = Entry("failed", failure=Failure.of(error, 0))
        return _decide(client, [f"{workflow}#{other}"], failed, plan.keep)
    return []


def _is_ready(client: TaskClient, workflow: str, plan: Plan, other: int) -> bool:
    """Return True when all before a step are done, as far as its input does not show that."""
    step = plan.steps[other]
    return step.takes is not None or _are_done(client, workflow, plan, step.after)


def _input(client: TaskClient, workflow: str, plan: Plan, other: int) -> bytes | None:
    """Return the values that a step takes; None when its message cannot hold them.

    Raises ResultMissing when it is not done.
    """
    step = plan.steps[other]
    if step.takes is None:
        return b""
    if not step.many:
        identity = f"{workflow}#{step.after[0]}"
        entry = client.results.read(identity)
        if entry is None or entry.state != "done":
            raise ResultMissing(f"step {identity} has no value")
        return None if entry.large else fitting(client, step, entry.value)
    values = (each.value for each in gather(client, workflow, plan, step.after))
    value = joined_up_to(values, bytes_left(client, step))
    if value is None and not _are_done(client, workflow, plan, step.after):
        raise ResultMissing(f"step {workflow}#{other} waits for others")
    return value


def _are_done(client: TaskClient, workflow: str, plan: Plan, numbers: Sequence[int]) -> bool:
    found = entries_of(client, [f"{workflow}#{number}" for number in numbers])
    return all(unblocks(plan, number, entry) for number, (_, entry) in zip(numbers, found, strict=True))


def _closed(client: TaskClient, bucket: str, plan: Plan, sent: set[str]) -> list[str]:
    """Write the entry of a bucket all of whose ends have ended. It repeats their values if they are small.

    That of a task which returned a workflow has its result, of any size.
    """
    values: list[bytes] | None = (
        None if plan.replaces_task or any(plan.steps[end].is_bucket for end in plan.ends) else []
    )
    partial, size = False, 0
    for identity, entry in entries_of(client, [f"{bucket}#{end}" for end in plan.ends]):
        number = split_step(identity)[1]
        if entry is None or not unblocks(plan, number, entry):
            return []
        partial |= entry.partial or entry.state == "failed"
        if values is None or entry.large:
            values = None
            continue
        (found,) = values_in(client, identity, plan.steps[number], entry)
        values.append(found.value)
        size += len(found.value)
        values = None if size > KEPT_BYTES else values
    sent.add(bucket)
    ended = Entry("done", apart=True) if values is None else Entry("done", joined(values))
    if plan.replaces_task:
        try:
            ended = _of_replaced(client, bucket, plan)
        except (MessageTooLarge, ResultMissing) as error:
            ended = Entry("failed", failure=Failure.of(error, 0))
    return _decide(client, [bucket], msgspec.structs.replace(ended, partial=partial), plan.keep)


def _of_replaced(client: TaskClient, task: str, plan: Plan) -> Entry:
    """Return the result of a task that returned a workflow whose ends are done.

    Raises MessageTooLarge, ResultMissing.
    """
    if not plan.many:
        entry = client.results.read(identity := f"{task}#{plan.ends[0]}")
        if entry is None:
            raise ResultMissing(f"what step {identity} returned is not kept any more")
        return Entry("done", entry.value, large=entry.large)
    value = joined_up_to((each.value for each in gather(client, task, plan, plan.ends)), MAX_RESULT_BYTES)
    if value is None:
        raise MessageTooLarge(
            f"the list of what the calls returned that task {task} returned has more than {MAX_RESULT_BYTES:,} bytes: "
            "let them return less, such as where a result is stored"
        )
    return Entry("done", value)


def _all_ended(
    client: TaskClient, workflow: str, numbers: Sequence[int], number: int, seen: Seen, waits: str
) -> bool:
    """Return True when these steps have entries, as far as can be seen with few requests.

    It looks first at the one behind this, and stops at the first that has not ended: that one comes here later.
    """
    if waits in seen.blocked and f"{workflow}#{number}" in seen.ended:
        return False
    place = numbers.index(number)
    ids = [f"{workflow}#{other}" for other in (*numbers[place:], *numbers[:place])]
    unknown, count = [each for each in ids if each not in seen.present], 1
    while unknown:
        some, unknown = unknown[:count], unknown[count:]
        entered = client.results.entered(some)
        seen.present.update(each for each, is_there in zip(some, entered, strict=True) if is_there)
        if not all(entered):
            seen.blocked.add(waits)
            return False
        count = min(4 * count, MOST_AT_ONCE)
    return True


def _decide(client: TaskClient, steps: Sequence[str], entry: Entry, keep: float) -> list[str]:
    if steps:
        client.results.decide([Decided(step, entry, keep) for step in steps])
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
