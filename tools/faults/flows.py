"""Workflows whose workers are killed: each ends once, with the right result, and no step is sent twice."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

import shardq
from shardq.client import Client
from shardq.client.outcome import DeadLetter
from shardq.tasks import Middleware, Tasks, Workflow, chain, chord, group

from .history import Delivery, Event, Log, Phase
from .offence import SHOWN, Offence
from .stage import Stage

__all__ = [
    "KINDS",
    "create_flows",
    "finish_flows",
    "flows_queue",
    "judge_flows",
    "make_tasks",
    "make_workflow",
    "start_flows",
]

SHARE = 200  # one workflow, of about eight steps, for so many messages in the queue under test
SENDERS, RUNNERS = 2, 3
KINDS = ("chain", "chord", "nested", "large", "failing")
CALLS = {"chord": 5, "nested": 3, "large": 12}
MOST_LISTED = 10_000
TOLD = frozenset({"order", "see-end", "take-step", "run-step", "end-flow"})


def flows_queue(queue: str) -> str:
    """The queue of the steps of a queue under test."""
    return f"{queue}.steps"


def create_flows(client: Client, queue: str, lease: float) -> None:
    """Create the queue of the steps. None is dead-lettered because its workers die."""
    name = flows_queue(queue)
    client.create_queue(name, shards=2, time_shards=2, visibility_timeout=lease, max_deliveries=None)


def start_flows(stage: Stage, queue: str, messages: int, seconds: float) -> None:
    """Start those that send workflows, and the workers of their steps."""
    name, count = flows_queue(queue), max(len(KINDS), messages // SHARE // SENDERS)
    for number in range(1, SENDERS + 1):
        stage.start("order", f"b{number}", queue=name, messages=count, rate=count / seconds)
    for number in range(1, RUNNERS + 1):
        stage.start("run", f"r{number}", queue=name)


def make_tasks(middleware: Sequence[Middleware] = ()) -> Tasks:
    """The tasks of which the workflows are made."""
    tasks = Tasks(middleware=middleware)

    @tasks.task
    def more(number: int) -> int:
        return number + 1

    @tasks.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @tasks.task
    def fail(number: int) -> int:
        raise DeadLetter(f"{number} is not wanted")

    return tasks


def make_workflow(app: Tasks, name: str, queue: str) -> Workflow:
    """The workflow of a name, which is its kind, its sender and its number."""
    more, total, fail = (app.tasks[each].options(queue=queue) for each in ("more", "total", "fail"))
    kind, number = name.partition("-")[0], int(name.rpartition("-")[2])
    calls = [more.signature(number + each) for each in range(CALLS.get(kind, 1))]
    if kind == "chain":
        return chain(*calls, more.then(), more.then())
    if kind == "nested":
        return chain(
            chord(calls, total.then()), group(more.then(), chain(more.then(), more.then())), total.then()
        )
    if kind == "failing":
        return chord([*calls, fail.signature(number)], total.then())
    return chord(calls, total.then())


def expected(name: str) -> str:
    """What is to become of a workflow: its state, and its value."""
    kind, number = name.partition("-")[0], int(name.rpartition("-")[2])
    summed = sum(number + each + 1 for each in range(CALLS.get(kind, 1)))
    values = {"chain": number + 3, "nested": 2 * summed + 3}
    return "failed" if kind == "failing" else f"done {values.get(kind, summed)}"


def finish_flows(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """Let the workers run what is left, and leave; write down what became of each workflow.

    A step is acked when what waits for it is sent. So where the queue is empty, all has ended that ever will.
    """
    steps, until = client.queue(flows_queue(queue)), time.monotonic() + seconds
    left: object = "it could not be counted"
    while left and time.monotonic() < until:
        with suppress(shardq.StoreUnavailable, shardq.OutcomeUnknown):
            counts = steps.counts()
            left = counts if counts.ready + counts.delayed + counts.in_flight else None
        time.sleep(0.2)
    stage.end("run")
    if left:
        return [f"the steps of workflows were not drained in time: {left}"]
    log = stage.folder / "workflows.jsonl"
    stage.logs.append(log)
    _write_down(Log(log), client, steps.name)
    return []


def _write_down(log: Log, client: Client, queue: str) -> None:
    app = make_tasks()
    app.bind(client)
    for each in app.workflows(limit=MOST_LISTED):
        if each.queue != queue:
            continue
        value = f" {app.workflow(each.id).get(timeout=0)}" if each.state == "done" else ""
        log.write(
            Event(
                at=time.monotonic_ns(),
                actor="workflows",
                number=1,
                verb="end-flow",
                phase=Phase.OK,
                bodies=(each.name,),
                deliveries=(Delivery(each.name, each.id, 0, 0, 0),),
                note=f"{each.state}{value}",
            )
        )


def judge_flows(events: Sequence[Event]) -> list[Offence]:
    """Workflows that were lost, did not end or ended wrongly, and steps that were sent or run too often."""
    ended = [event for event in events if event.verb == "end-flow"]
    found = {**(_of_workflows(events, ended) if ended else {}), **_of_steps(events)}
    return [
        Offence(promise, len(names), {each: tuple(_history(events, each)) for each in sorted(names)[:SHOWN]})
        for promise, names in found.items()
        if names
    ]


def _of_workflows(events: Sequence[Event], ended: Sequence[Event]) -> dict[str, set[str]]:
    sent = _sent(events)
    ids: dict[str, set[str]] = defaultdict(set)
    for event in ended:
        for each in event.deliveries:
            ids[each.body].add(each.id)
    states = [(name, event.note) for event in ended for name in event.bodies]
    return {
        "workflow lost": {name for name, phase in sent.items() if phase is Phase.OK and name not in ids},
        "workflow that nobody sent": {name for name in ids if sent.get(name, Phase.FAILED) is Phase.FAILED},
        "workflow begun twice": {name for name, each in ids.items() if len(each) > 1},
        "workflow that does not end": {name for name, note in states if note == "running"},
        "workflow with a wrong result": {
            name for name, note in states if note not in ("running", expected(name))
        },
    }


def _sent(events: Sequence[Event]) -> dict[str, Phase]:
    found: dict[str, Phase] = {}
    for event in events:
        if event.verb == "order":
            phase = Phase.UNKNOWN if event.phase is Phase.INVOKE else event.phase
            found |= dict.fromkeys(event.bodies, phase)
    return found


def _of_steps(events: Sequence[Event]) -> dict[str, set[str]]:
    """Steps that ran of two messages, and those that ran although they were received when their workflow had ended."""
    over: dict[str, int] = {}
    taken: dict[tuple[str, str], Event] = {}
    ids: dict[str, set[str]] = defaultdict(set)
    late: set[str] = set()
    for event in events:
        if event.verb == "see-end":
            over |= {each: event.at for each in event.bodies if each not in over}
        elif event.verb == "take-step":
            taken |= {(event.actor, each.body): event for each in event.deliveries}
        elif event.verb == "run-step":
            for step in event.bodies:
                take = taken[event.actor, step]
                ids[step] |= {each.id for each in take.deliveries if each.body == step}
                if take.at > over.get(step.partition("#")[0], take.at):
                    late.add(step)
    twice = {step for step, each in ids.items() if len(each) > 1}
    return {"step of two messages": twice, "step run when all had ended": late}


def _history(events: Sequence[Event], name: str) -> Iterator[Event]:
    """What is told of a workflow by its name, or of a step by its id."""
    about = {event.note for event in events if event.verb == "order" and name in event.bodies} - {""}
    about |= {each.id for event in events for each in event.deliveries if each.body == name}
    workflows = {each.partition("#")[0] for each in about} | {name.partition("#")[0]}
    for event in events:
        told = [*event.bodies, *(each.body for each in event.deliveries)]
        if event.verb in TOLD and any(each == name or each.partition("#")[0] in workflows for each in told):
            yield event
