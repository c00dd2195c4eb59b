"""Every way to settle what is held, and what each does when something is in its way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.receiving.named_claim_log import ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import context_of

LEASE = 30_000_000
NAME = ClaimName(Shard("q", 0, 0), "claim")


class Refused(Exception):
    """What a hook raises."""


class Guard(shardq.Hooks):
    """Refuses acks."""

    refuses = False

    def before_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
        if self.refuses:
            raise Refused


class Scene:
    """A queue with one message that is held, by a client whose store fails by a plan, beside one that works."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock = clock
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.guard = Guard()
        self.client = shardq.Client(self.store, hooks=self.guard, retry_seconds=5.0)
        self.sound = shardq.connect(url, clock=clock)
        for name in ("q", "other"):
            self.sound.create_queue(name, shards=1, time_shards=1, visibility_timeout=30)
        self.queue = self.client.queue("q")
        self.id = self.sound.queue("q").producer().send(b"x")

    def fail(self, method: str, kind: FaultKind) -> None:
        """Let the next call fail."""
        calls = sum(call.method == method for call in self.store.calls)
        self.store.plan = FaultPlan(faults=(Fault(method, calls + 1, kind),))

    def state(self) -> str:
        """Where the message is."""
        for name in ("other", "q.dead"):
            if self.sound.queue(name).counts().ready:
                return name
        found = self.sound.queue("q").get(self.id)
        if found is None:
            return "gone"
        until = (found.due - self.sound.now()).total_seconds()
        return "held for longer" if found.state.value == "in_flight" and until > 30 else found.state.value


Act = Callable[[], int]  # how many messages are lost


def telling(settle: Callable[[], None]) -> Act:
    """A way to settle that raises LeaseLost."""

    def act() -> int:
        try:
            settle()
        except shardq.LeaseLost as error:
            return len(error.messages)
        return 0

    return act


def message(verb: str, *arguments: object, **options: object) -> Callable[[Scene], Act]:
    def prepare(scene: Scene) -> Act:
        (received,) = scene.queue.consumer().receive(1)
        return telling(lambda: getattr(received, verb)(*arguments, **options))

    return prepare


def batch(verb: str, *arguments: object, **options: object) -> Callable[[Scene], Act]:
    def prepare(scene: Scene) -> Act:
        received = scene.queue.consumer().receive(1)
        return telling(lambda: getattr(received, verb)(*arguments, **options))

    return prepare


def receipt(verb: str, *arguments: object) -> Callable[[Scene], Act]:
    def prepare(scene: Scene) -> Act:
        (received,) = scene.queue.consumer().receive(1)
        return telling(lambda: getattr(scene.queue, verb)([received.receipt], *arguments))

    return prepare


def last(prepare: Callable[[Scene], Act]) -> Callable[[Scene], Act]:
    """A way to settle a message after the only delivery that it is allowed."""

    def prepare_last(scene: Scene) -> Act:
        act = prepare(scene)

        def act_on_the_last() -> int:
            scene.queue.alter(max_deliveries=1)
            return act()

        return act_on_the_last

    return prepare_last


def named(verb: str) -> Callable[[Scene], Act]:
    def prepare(scene: Scene) -> Act:
        claims = NamedClaims(context_of(scene.queue), lease=LEASE, memory=86_400_000_000)
        assert claims.take(NAME, 1, owner="test", strict=True).got == 1
        scene.clock.advance(1)
        longer = NamedClaims(context_of(scene.queue), lease=2 * LEASE, memory=86_400_000_000)
        return lambda: getattr(longer, verb)([NAME])

    return prepare


class Way(NamedTuple):
    """A way to settle: what it does, and what it makes of a message that was removed while it was held."""

    prepare: Callable[[Scene], Act]
    does: str
    method: str
    gone_is_done: bool = False
    calls_hooks: bool = False
    obeys_pause: bool = False


def acking(prepare: Callable[[Scene], Act], *, hooks: bool) -> Way:
    return Way(prepare, "gone", "acknowledge", gone_is_done=True, calls_hooks=hooks)


WAYS = {
    "ack by message": acking(message("ack"), hooks=True),
    "ack by batch": acking(batch("ack"), hooks=True),
    "ack by receipt": acking(receipt("ack"), hooks=True),
    "ack by named claim": acking(named("ack"), hooks=False),
    "release by message": Way(message("release"), "ready", "release"),
    "release by batch": Way(batch("release"), "ready", "release"),
    "uncounted release by batch": Way(batch("release", count=False), "ready", "release"),
    "uncounted release by message": Way(message("release", count=False), "ready", "release"),
    "release by receipt": Way(receipt("release"), "ready", "release"),
    "last release by message": Way(last(message("release")), "q.dead", "forward"),
    "last release by batch": Way(last(batch("release")), "q.dead", "forward"),
    "last release by receipt": Way(last(receipt("release")), "ready", "release"),
    "last uncounted release by message": Way(last(message("release", count=False)), "ready", "release"),
    "extend by message": Way(message("extend", 60), "held for longer", "extend"),
    "extend by batch": Way(batch("extend", 60), "held for longer", "extend"),
    "extend by receipt": Way(receipt("extend", 60), "held for longer", "extend"),
    "extend by named claim": Way(named("extend"), "held for longer", "extend", gone_is_done=True),
    "forward by message": Way(message("forward", "other"), "other", "forward", obeys_pause=True),
    "forward by batch": Way(batch("forward", "other"), "other", "forward", obeys_pause=True),
    "dead_letter by message": Way(message("dead_letter", "bad"), "q.dead", "forward"),
    "dead_letter by batch": Way(batch("dead_letter", "bad"), "q.dead", "forward"),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture
def scene(url: str, clock: ManualClock) -> Scene:
    return Scene(url, clock)


@every_way
def test_what_is_held_is_settled(scene: Scene, way: Way) -> None:
    assert way.prepare(scene)() == 0
    assert scene.state() == way.does


@every_way
@pytest.mark.parametrize("kind", FaultKind)
def test_an_attempt_that_failed_is_repeated_and_settles_once(scene: Scene, way: Way, kind: FaultKind) -> None:
    act = way.prepare(scene)
    scene.fail(way.method, kind)
    assert act() == 0
    assert any(call.fault for call in scene.store.calls)
    assert scene.state() == way.does


@every_way
def test_what_somebody_else_has_claimed_is_lost_and_left_alone(scene: Scene, way: Way) -> None:
    act = way.prepare(scene)
    scene.clock.advance(31)
    (taken,) = scene.sound.queue("q").consumer().receive(1)
    assert act() == 1
    assert scene.state() == "in_flight"
    taken.ack()


@every_way
def test_what_was_removed_while_it_was_held_is_acked_and_otherwise_lost(scene: Scene, way: Way) -> None:
    act = way.prepare(scene)
    scene.sound.queue("q").remove(scene.id)
    assert act() == (0 if way.gone_is_done else 1)
    assert scene.state() == "gone"


@every_way
def test_paused_sends_stop_forwarding_and_nothing_else(scene: Scene, way: Way) -> None:
    act = way.prepare(scene)
    for name in ("q", "other", "q.dead"):
        scene.client.queue(name).pause(delivery=False, sends=True)
    if way.obeys_pause:
        with pytest.raises(shardq.QueuePaused):
            act()
        assert scene.state() == "in_flight"
    else:
        assert act() == 0
        assert scene.state() == way.does


@every_way
def test_a_hook_can_refuse_acks_by_whoever_received_the_message_and_nothing_else(
    scene: Scene, way: Way
) -> None:
    act = way.prepare(scene)
    scene.guard.refuses = True
    if way.calls_hooks:
        with pytest.raises(Refused):
            act()
        assert scene.state() == "in_flight"
    else:
        assert act() == 0
        assert scene.state() == way.does


@pytest.mark.parametrize("verb", ["ack", "release", "forward"])
def test_an_unanswered_attempt_at_one_message_explains_nothing_of_another(
    url: str, clock: ManualClock, verb: str
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    client = shardq.Client(store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1, visibility_timeout=30)
    client.create_queue("other", shards=1, time_shards=1)
    queue.producer().send_many([b"1", b"2"])
    first, second = queue.consumer().receive(2)
    method = {"ack": "acknowledge"}.get(verb, verb)
    arguments = ("other",) if verb == "forward" else ()
    store.plan = FaultPlan(faults=(Fault(method, 1, FaultKind.LOST_REQUEST),))
    with pytest.raises(shardq.OutcomeUnknown):
        getattr(first, verb)(*arguments)
    clock.advance(31)
    queue.consumer().receive(2).ack()
    with pytest.raises(shardq.LeaseLost):
        getattr(second, verb)(*arguments)


def test_a_batch_refuses_to_settle_messages_of_another_one(scene: Scene) -> None:
    (stranger,) = scene.queue.consumer().receive(1)
    scene.queue.producer().send(b"y")
    batch = scene.queue.consumer().receive(1)
    with pytest.raises(shardq.InvalidSetting, match="not of this batch"):
        batch.part([stranger])
    batch.part([batch[0], batch[0]]).ack()
    assert scene.state() == "in_flight"
