"""Whatever several threads settle together, and whatever fails meanwhile, each message is where its thread was told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Call, FaultPlan, FaultyStore, ManualClock
from shardq.testing.conformance.contract import run_together

THREADS, EACH = 8, 9
SETTLING = frozenset({"acknowledge", "release", "forward", "settle"})
LATER = 100.0

Settle: TypeAlias = Callable[[shardq.Queue, shardq.Message], None]
VERBS: dict[str, Settle] = {
    "ack": lambda _, message: message.ack(),
    "ack by receipt": lambda queue, message: queue.ack([message.receipt]),
    "release": lambda _, message: message.release(delay=LATER),
    "release by receipt": lambda queue, message: queue.release([message.receipt], delay=LATER),
    "dead-letter": lambda _, message: message.dead_letter("by plan"),
}
PLACE = {"ack": "nowhere", "release": "delayed", "dead-letter": "dead"}


class Seen(shardq.Hooks):
    """Counts how often each message was about to be acked, and was."""

    def __init__(self) -> None:
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()

    def before_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
        self.before.update(f"{queue} {message.id}" for message in messages)

    def after_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
        self.after.update(f"{queue} {message.id}" for message in messages)


class Scene:
    """Two queues of several shards, in which one consumer holds all messages and has lost some of them to a thief."""

    def __init__(self, url: str, clock: ManualClock, *, retry_seconds: float) -> None:
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.hooks = Seen()
        self.client = shardq.Client(self.store, hooks=self.hooks, retry_seconds=retry_seconds)
        self.queues = [
            self.client.create_queue(name, shards=4, time_shards=1, visibility_timeout=30)
            for name in ("a", "b")
        ]
        self.held = [(queue, message) for queue in self.queues for message in self._receive(queue)]
        clock.advance(60)
        with shardq.connect(url, clock=clock) as other:
            self.stolen = {
                message.id
                for queue in self.queues
                for message in other.queue(queue.name).consumer(visibility_timeout=3600).receive(6)
            }

    def _receive(self, queue: shardq.Queue) -> Sequence[shardq.Message]:
        with queue.producer(bundle_messages=3) as producer:
            producer.send_many([b"%d" % number for number in range(THREADS * EACH // 2)])
        return list(queue.consumer().receive(THREADS * EACH))

    def place(self, queue: shardq.Queue, message: shardq.Message) -> str:
        """Where a message is."""
        if message.raw in {each.body for each in self.client.queue(f"{queue.name}.dead").peek(1000)}:
            return "dead"
        found = queue.get(message.id)
        return "nowhere" if found is None else found.state.value


@pytest.fixture
def scene(url: str, clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Scene]:
    scene = Scene(url, clock, retry_seconds=getattr(request, "param", 0.0))
    yield scene
    scene.store.plan = FaultPlan()
    scene.client.close()


Told: TypeAlias = tuple[shardq.Queue, shardq.Message, str, list[type[Exception]]]


def settled_together(scene: Scene, seed: int) -> list[Told]:
    """Settle each message in one of the threads with some verb, again until it is known; tells what was raised."""
    dice = random.Random(seed)
    plan = [(queue, message, dice.choice(sorted(VERBS))) for queue, message in scene.held]
    dice.shuffle(plan)

    def settle(mine: Sequence[tuple[shardq.Queue, shardq.Message, str]]) -> list[Told]:
        return [(*each, list(errors(*each))) for each in mine]

    parts = [plan[number::THREADS] for number in range(THREADS)]
    return [told for part in run_together([partial(settle, part) for part in parts]) for told in part]


def errors(queue: shardq.Queue, message: shardq.Message, verb: str) -> Iterator[type[Exception]]:
    for _ in range(100):
        try:
            VERBS[verb](queue, message)
        except (shardq.StoreUnavailable, shardq.OutcomeUnknown) as error:
            yield type(error)
        except shardq.LeaseLost as error:
            yield type(error)
            return
        else:
            return
    pytest.fail("it never went well")


@pytest.mark.parametrize("seed", range(3))
def test_each_thread_is_told_the_truth_of_its_own_messages_only(scene: Scene, seed: int) -> None:
    told = settled_together(scene, seed)
    for queue, message, verb, raised in told:
        lost = message.id in scene.stolen
        assert raised == [shardq.LeaseLost] * lost, (verb, message.id)
        kind = verb.removesuffix(" by receipt")
        assert scene.place(queue, message) == ("in_flight" if lost else PLACE[kind])
    assert any(call.method == "settle" for call in scene.store.calls)
    acks = {
        f"{queue.name} {message.id}": message.id not in scene.stolen
        for queue, message, verb, _ in told
        if verb.startswith("ack")
    }
    assert scene.hooks.before == Counter(dict.fromkeys(acks, 1))
    assert scene.hooks.after == Counter(name for name, done in acks.items() if done)


@pytest.mark.parametrize(
    ("scene", "by_client"),
    [(0.0, False), (15.0, True)],
    indirect=["scene"],
    ids=["by the caller", "by the client"],
)
@pytest.mark.parametrize("seed", range(3))
def test_with_faults_each_message_is_settled_once_or_is_known_to_be_lost(
    scene: Scene, by_client: bool, seed: int
) -> None:
    """A fault is everybody's who was in that request, and whoever repeats it is told what became of his own."""
    scene.store.plan = FaultPlan(probability=0.25, seed=seed, methods=SETTLING)
    told = settled_together(scene, seed)
    faults = [call for call in scene.store.calls if call.fault is not None]
    scene.store.plan = FaultPlan()
    assert any(map(_is_joined, faults))
    for queue, message, verb, raised in told:
        kind, lost = verb.removesuffix(" by receipt"), message.id in scene.stolen
        assert scene.place(queue, message) == ("in_flight" if lost else PLACE[kind]), (verb, raised)
        if (shardq.LeaseLost in raised) is not lost:  # an unanswered release may have been what lost it
            assert kind == "release", (verb, raised)
            assert by_client or shardq.OutcomeUnknown in raised, (verb, raised)


def _is_joined(call: Call) -> bool:
    return call.method == "settle" and len(call.arguments[0]) > 1
