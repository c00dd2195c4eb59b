"""One round: clients at work under faults, healing, a full drain, an audit, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

import shardq
from shardq.base.clock import SystemClock
from shardq.client import Client
from shardq.storage.opening import open_store

from .asked import asked_queue, create_asked, finish_asked, start_askers
from .assignment import Assignment
from .behind import audit
from .films import audit_films, create_films, films_queue, finish_films, start_films
from .flows import create_flows, finish_flows, flows_queue, start_flows
from .history import read_history
from .liveness import Progress, progress
from .nemesis import Deed, Nemesis
from .pooled import create_pooled, finish_pooled, pooled_queue, start_pool, wake_pool
from .published import create_published, finish_published, start_publishers
from .rules import Promise
from .saved import audit_saved, start_saving
from .schedule import Step
from .side import create_side, finish_moves, side_queues, start_movers
from .sparking import start_spark
from .stage import CONSUMERS, SENDERS, SLOW_SENDERS, Stage
from .target import Target
from .ticks import create_ticks, finish_ticks, start_ticks, ticked_queue
from .verdict import Verdict, judge
from .waiting import wait_until_empty

__all__ = ["Plan", "Round", "run_round"]

PRODUCERS, WORKERS, KEEPERS, PREFETCHERS = 2, 4, 1, 1
BESIDE = ("dead", "bystander", "partly")  # queues of other purposes
MAX_DELIVERIES = 2  # so that some messages become dead letters
FINISHING = 300.0  # seconds until all is sent, until it is drained, and until dead letters are read
BEGINNING = 300.0
"""Seconds to create the queues, and until Spark and every client have begun, on a busy computer."""


class Plan(msgspec.Struct, frozen=True):
    """What a round is made of."""

    seed: int
    number: int
    messages: int
    seconds: float  # of faults
    defect: str = ""

    @property
    def queue(self) -> str:
        return f"faults{self.number}"

    def lasting(self, seconds: float) -> Plan:
        """With so many seconds where none are given."""
        return self if self.seconds else msgspec.structs.replace(self, seconds=seconds)


class Round(msgspec.Struct, frozen=True):
    """What a round gave."""

    store: str
    plan: Plan
    verdict: Verdict
    liveness: tuple[Progress, ...]
    # Beyond single messages: no progress, no drain, clients that died, what the audit found.
    problems: tuple[str, ...]
    steps: tuple[Step, ...]
    deeds: tuple[Deed, ...]
    seconds: float
    phases: dict[str, float] = {}  # how many of these seconds each part of the round took

    @property
    def kept(self) -> bool:
        return self.verdict.kept and not self.problems


class Stopwatch:
    """Where the time of a round goes."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        """What ends now took the time since what ended last."""
        now = time.monotonic()
        self.laps[name], self._last = round(now - self._last, 1), now


def run_round(target: Target, plan: Plan, folder: Path) -> Round:
    """Run it; everything that the clients wrote stays in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    watch = Stopwatch()
    with Client(open_store(target.url, SystemClock()), retry_seconds=BEGINNING) as client:
        _create(client, plan, target)
    watch.lap("queues created")
    with Client(open_store(target.url, SystemClock()), retry_seconds=30) as client:
        queue = client.queue(plan.queue)
        stage = Stage(folder, _template(target, plan), f"{plan.seed} {plan.number} clients")
        nemesis = Nemesis(target, stage, client, plan.queue)
        steps = nemesis.plan(f"{plan.seed} {plan.number}", plan.seconds)
        try:
            start_spark(stage, plan.messages, plan.seconds)
            stage.wait_until_at_work(BEGINNING)  # before the others, who would have sent everything meanwhile
            _start_clients(stage, client, target, plan)
            stage.wait_until_at_work(BEGINNING)
            watch.lap("clients started")
            nemesis.run(steps, plan.seconds)
            watch.lap("faults")
            return _finish(nemesis, queue, plan, steps, watch)
        finally:
            nemesis.heal()
            stage.end()


def _create(client: Client, plan: Plan, target: Target) -> None:
    client.create_queue(
        plan.queue,
        shards=4,
        time_shards=3,
        time_shard_seconds=2.0,
        visibility_timeout=target.lease,
        max_deliveries=MAX_DELIVERIES,
    )
    client.create_queue(f"{plan.queue}.bystander", shards=2, time_shards=2, max_deliveries=None)
    create_side(client, plan.queue, target.lease)
    create_asked(client, plan.queue, target.lease)
    create_published(client, plan.queue, target.lease)
    create_ticks(client, plan.queue, target.lease)
    create_flows(client, plan.queue, target.lease)
    create_films(client, plan.queue, target.lease)
    create_pooled(client, plan.queue, target.lease)


def _template(target: Target, plan: Plan) -> Assignment:
    return Assignment(
        role="",
        name="",
        seed=0,
        log="",
        dial="",
        url=target.clients_url,
        queue=plan.queue,
        rate=plan.messages / PRODUCERS / plan.seconds,
        lease=target.lease,
        store_goes_by_clock=target.goes_by_client_clock,
        detours=target.detours,
        defect=plan.defect,
    )


def _start_clients(stage: Stage, client: Client, target: Target, plan: Plan) -> None:
    share = plan.messages // PRODUCERS
    for number in range(1, PRODUCERS + 1):
        stage.start("produce", f"p{number}", messages=share)
    for number in range(1, WORKERS + 1):
        stage.start("work", f"w{number}")
    for number in range(1, KEEPERS + 1):
        stage.start("keep", f"k{number}")
    for number in range(1, PREFETCHERS + 1):
        stage.start("ahead", f"a{number}")
    stage.start("overlap", "o1")
    start_movers(stage, plan.queue, plan.messages, plan.seconds)
    start_askers(stage, plan.queue, plan.messages, plan.seconds)
    start_publishers(stage, client, plan.queue, plan.messages, plan.seconds)
    start_ticks(stage, plan.queue)
    start_flows(stage, plan.queue, plan.messages, plan.seconds)
    start_films(stage, plan.queue, plan.messages, plan.seconds)
    start_pool(stage, plan.queue, plan.messages, plan.seconds)
    start_saving(stage, target, plan.seconds)


def _finish(
    nemesis: Nemesis, queue: shardq.Queue, plan: Plan, steps: Sequence[Step], watch: Stopwatch
) -> Round:
    stage, target = nemesis.stage, nemesis.target
    nemesis.heal()
    watch.lap("healed")
    healed = time.monotonic_ns()
    alive = stage.unfinished()
    stage.hurry()
    wake_pool(nemesis.client, plan.queue)
    problems = list(nemesis.problems)
    if not stage.wait_for(*SENDERS, *SLOW_SENDERS, seconds=FINISHING):
        problems.append("producers did not finish")
        stage.kill(*SENDERS, *SLOW_SENDERS)  # what is stored at the end must not be what they go on to send
    watch.lap("sent")
    problems += wait_until_empty(queue, FINISHING)
    watch.lap("drained")
    liveness = _wait_until_all_got_on(stage, alive, healed, target.patience)
    stage.end(*CONSUMERS)  # idle ones would only be in the way of what is left to do
    watch.lap("consumers ended")
    problems += finish_moves(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("moved")
    problems += finish_asked(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("answered")
    problems += finish_published(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("published")
    problems += finish_ticks(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("ticked")
    problems += finish_flows(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("workflows ended")
    problems += finish_films(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("large bodies read")
    problems += finish_pooled(stage, nemesis.client, plan.queue, FINISHING)
    watch.lap("pool ended")
    remains = _remains(queue)
    problems += _collect(
        stage,
        {
            "collect": f"{plan.queue}.dead",
            "arrive": side_queues(plan.queue)[-1],
            "write-off": f"{pooled_queue(plan.queue)}.dead",
        },
    )
    problems += [f"client {name} died" for name in stage.deaths()]
    watch.lap("collected")
    stage.end()
    watch.lap("clients ended")
    queues = [plan.queue, *(f"{plan.queue}.{each}" for each in BESIDE), *side_queues(plan.queue)]
    queues += [asked_queue(plan.queue), ticked_queue(plan.queue)]
    queues += [flows_queue(plan.queue), films_queue(plan.queue)]
    queues += [pooled_queue(plan.queue), f"{pooled_queue(plan.queue)}.dead"]
    problems += audit(target, queues) + audit_films(target, plan.queue, plan.defect)
    watch.lap("audited")
    problems += audit_saved(target, stage, plan.queue)
    watch.lap("backups restored")
    events = read_history(stage.logs)
    promise = Promise(target.lease, MAX_DELIVERIES, target.tolerance, remains)
    problems += _slow(liveness, target.patience)
    verdict = judge(events, promise)
    watch.lap("judged")
    return Round(
        target.name,
        plan,
        verdict,
        tuple(liveness),
        tuple(problems),
        tuple(steps),
        tuple(nemesis.deeds),
        round(sum(watch.laps.values()), 1),
        watch.laps,
    )


def _wait_until_all_got_on(
    stage: Stage, alive: Sequence[str], healed: int, patience: float
) -> list[Progress]:
    while True:
        found = progress(read_history(stage.logs), alive, healed)
        late = time.monotonic_ns() > healed + patience * 1e9
        if late or all(each.seconds is not None for each in found):
            return found
        time.sleep(0.5)


def _remains(queue: shardq.Queue) -> dict[str, str]:
    """What is still stored, by state; nothing where that cannot be read, as a queue that was not drained."""
    with suppress(shardq.StoreUnavailable, shardq.OutcomeUnknown):
        return {stored.body.decode().rstrip(" "): stored.state.value for stored in queue.peek(100_000)}
    return {}


def _collect(stage: Stage, queues: Mapping[str, str]) -> list[str]:
    """Let clients of these roles empty their queues, side by side."""
    for role, queue in queues.items():
        stage.start(role, role, queue=queue)
    return [
        f"queue {queue} could not be read"
        for role, queue in queues.items()
        if not stage.wait_for(role, seconds=FINISHING)
    ]


def _slow(liveness: Sequence[Progress], patience: float) -> list[str]:
    return [
        f"client {each.actor} made no progress within {patience:g} s of healing: {each.seconds}"
        for each in liveness
        if each.seconds is None or each.seconds > patience
    ]
