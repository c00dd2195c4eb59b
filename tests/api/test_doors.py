"""Every way in which a message comes into a queue, and what each does when something is in its way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

import shardq
from shardq.spark.jobs.copies import begin_copy, copy_shard
from shardq.spark.parts import RunPart
from shardq.spark.runs import Run
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import context_of
from tests.dying_store import DyingStore

BODY = b"x" * 200
SMALL = 100  # bytes that a queue takes, when the body is too large for it
WEEK = 7 * 86_400_000_000
UNKNOWN = [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE]


class Refused(Exception):
    """What a hook raises."""


class Guard(shardq.Hooks):
    """Refuses messages, and counts those that it is shown."""

    refuses = False
    seen = 0

    def before_send(self, queue: str, messages: Sequence[shardq.OutgoingMessage]) -> None:
        self.seen += len(messages)
        if self.refuses:
            raise Refused


class Scene:
    """Queues of a client whose store fails by a plan, beside a client that works."""

    def __init__(self, url: str, clock: ManualClock, *, in_one_step: bool, retry_seconds: float) -> None:
        inner: Store = open_store(url, clock)
        self.store = FaultyStore(inner if in_one_step else DyingStore(inner), FaultPlan())
        self.guard = Guard()
        self.client = shardq.Client(self.store, hooks=self.guard, retry_seconds=retry_seconds)
        self.sound = shardq.connect(url, clock=clock)
        for name in ("q", "other"):
            self.sound.create_queue(name, shards=1, time_shards=1, history_retention=3_600)
        self.queue = self.client.queue("q")
        self.run = begin_copy(context_of(self.client.queue("other")))

    def held(self) -> shardq.Message:
        """A message that is held by the client under test."""
        self.sound.queue("q").producer().send(BODY, headers={"a": 1})
        (message,) = self.queue.consumer().receive(1)
        return message

    def fail(self, method: str, kind: FaultKind) -> None:
        """Let the next call fail."""
        calls = sum(call.method == method for call in self.store.calls)
        self.store.plan = FaultPlan(faults=(Fault(method, calls + 1, kind),))

    def received(self, name: str) -> Counter[bytes]:
        """What is delivered from a queue, acked."""
        with self.sound.queue(name).consumer() as consumer:
            batch = consumer.receive(100)
            batch.ack()
            return Counter(batch.bodies)


Act = Callable[[], object]


def send(scene: Scene) -> Act:
    producer, again = scene.queue.producer(), [shardq.OutgoingMessage(body=BODY)]

    def act() -> None:
        try:
            producer.send(again[0])
        except shardq.OutcomeUnknown as error:
            again[:] = error.unsent
            raise

    return act


def send_many(scene: Scene) -> Act:
    producer, again = scene.queue.producer(), [shardq.OutgoingMessage(body=BODY)]

    def act() -> None:
        try:
            producer.send_many(again)
        except shardq.PartialSend as error:
            again[:] = error.unsent
            raise

    return act


def joined_sends(scene: Scene) -> Act:
    """Two threads whose messages are stored together."""
    producer = scene.queue.producer(linger=60.0, bundle_messages=2)
    again = [shardq.OutgoingMessage(body=BODY) for _ in range(2)]

    def act() -> None:
        errors: list[BaseException] = []

        def one(number: int) -> None:
            try:
                producer.send(again[number])
            except BaseException as error:
                errors.append(error)
                if isinstance(error, shardq.OutcomeUnknown):
                    (again[number],) = error.unsent

        threads = [threading.Thread(target=one, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            assert len({type(error) for error in errors}) == 1
            raise errors[0]

    return act


def forward(scene: Scene) -> Act:
    message = scene.held()
    return lambda: message.forward("other", atomic=scene.store.capabilities.forward_across_shards)


def forward_changed(scene: Scene) -> Act:
    message = scene.held()
    atomic = scene.store.capabilities.forward_across_shards
    return lambda: message.forward("other", body=BODY, headers={"b": 2}, priority=1, atomic=atomic)


def redrive(scene: Scene) -> Act:
    scene.held().dead_letter("bad")
    return scene.queue.redrive


def replay(scene: Scene) -> Act:
    scene.held().ack()
    return lambda: scene.queue.replay(to="other")


def dead_letter(scene: Scene) -> Act:
    message = scene.held()
    return lambda: message.dead_letter("bad")


def replace(scene: Scene) -> Act:
    message = scene.held()
    return lambda: message.release(body=BODY)


def run(scene: Scene) -> Act:
    options: dict[str, Any] = {"window": WEEK, "bundle_messages": 100, "bundle_bytes": 262_144}
    sender = Run(context_of(scene.queue), "job", **options)
    return lambda: sender.send(RunPart("0-0", "same", 0, [BODY]))


def copy(scene: Scene) -> Act:
    scene.sound.queue("q").producer().send(BODY)
    (state,) = scene.queue.shard_states()
    target = context_of(scene.client.queue("other"))
    return lambda: copy_shard(context_of(scene.queue), state.shard, target, scene.run)


class Door(NamedTuple):
    """A way into a queue, and the error that each obstacle is told by; None: it is none."""

    prepare: Callable[[Scene], Act]
    target: str
    paused: type[Exception] | None = shardq.QueuePaused
    too_large: type[Exception] | None = shardq.MessageTooLarge
    full: type[Exception] | None = shardq.QueueFull
    unanswered: type[Exception] = shardq.OutcomeUnknown
    hook: type[Exception] | None = None
    messages: int = 1
    moves: bool = False


DOORS = {
    "send": Door(send, "q", hook=Refused),
    "send_many": Door(send_many, "q", unanswered=shardq.PartialSend, hook=Refused),
    "joined sends": Door(joined_sends, "q", hook=Refused, messages=2),
    "forward": Door(forward, "other", moves=True),
    "forward, changed": Door(forward_changed, "other", moves=True),
    "redrive": Door(redrive, "q", moves=True),
    "replay": Door(replay, "other"),
    "dead_letter": Door(dead_letter, "q.dead", paused=None, too_large=None, full=None, moves=True),
    "replace": Door(replace, "q", paused=None, full=None, moves=True),
    "run": Door(run, "q"),
    "copy": Door(copy, "other"),
}
every_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
every_store = pytest.mark.parametrize("in_one_step", [True, False], ids=["in one step", "step by step"])


def obstructed(scene: Scene, door: Door, act: Act, error: type[Exception] | None) -> bool:
    """Go through the door; True when that was refused, as it should be, with nothing stored."""
    if error is None:
        act()
        return False
    before = scene.sound.queue(door.target).counts().ready
    with pytest.raises(error):
        act()
    assert scene.sound.queue(door.target).counts().ready == before
    return True


@every_store
@every_door
def test_paused_sends_are_obeyed_by_all_but_messages_that_have_no_other_place_to_go(
    url: str, clock: ManualClock, door: Door, in_one_step: bool
) -> None:
    scene = Scene(url, clock, in_one_step=in_one_step, retry_seconds=0.0)
    act, target = door.prepare(scene), scene.client.queue(door.target)
    target.pause(delivery=False, sends=True)
    refused = obstructed(scene, door, act, door.paused)
    target.resume()
    if refused:
        act()
    assert scene.received(door.target)[BODY] == door.messages


@every_store
@every_door
def test_the_limit_of_a_queue_is_obeyed_by_all_but_dead_letters(
    url: str, clock: ManualClock, door: Door, in_one_step: bool
) -> None:
    scene = Scene(url, clock, in_one_step=in_one_step, retry_seconds=0.0)
    act, target = door.prepare(scene), scene.client.queue(door.target)
    target.alter(max_message_bytes=SMALL)
    refused = obstructed(scene, door, act, door.too_large)
    target.alter(max_message_bytes=1_000)
    if refused:
        act()
    assert scene.received(door.target)[BODY] == door.messages


@every_store
@every_door
def test_the_bounds_of_a_queue_are_obeyed_by_all_but_messages_that_have_no_other_place_to_go(
    url: str, clock: ManualClock, door: Door, in_one_step: bool
) -> None:
    scene = Scene(url, clock, in_one_step=in_one_step, retry_seconds=0.0)
    act, target = door.prepare(scene), scene.client.queue(door.target)
    scene.sound.queue(door.target).producer().send(b"there")
    target.alter(max_messages=target.counts().ready)
    refused = obstructed(scene, door, act, door.full)
    target.alter(max_messages=None)
    if refused:
        act()
    assert scene.received(door.target)[BODY] == door.messages


@every_door
def test_hooks_are_shown_what_is_sent_and_can_refuse_that_alone(
    url: str, clock: ManualClock, door: Door
) -> None:
    scene = Scene(url, clock, in_one_step=True, retry_seconds=0.0)
    act = door.prepare(scene)
    scene.guard.refuses = True
    refused = obstructed(scene, door, act, door.hook)
    scene.guard.refuses = False
    if refused:
        act()
    assert scene.received(door.target)[BODY] == door.messages
    assert bool(scene.guard.seen) == (door.hook is not None)


@every_store
@pytest.mark.parametrize("kind", FaultKind)
@every_door
def test_an_attempt_that_failed_is_repeated_by_the_library_and_stores_once(
    url: str, clock: ManualClock, door: Door, in_one_step: bool, kind: FaultKind
) -> None:
    scene = Scene(url, clock, in_one_step=in_one_step, retry_seconds=5.0)
    act = door.prepare(scene)
    scene.fail(_method(door, in_one_step=in_one_step), kind)
    act()
    assert scene.store.plan.faults[0] in [
        Fault(call.method, scene.store.plan.faults[0].nth, kind) for call in scene.store.calls if call.fault
    ]
    assert scene.received(door.target)[BODY] == door.messages


@pytest.mark.parametrize("name", ["forward", "dead_letter", "redrive"])
def test_a_move_that_is_repeated_in_vain_stays_unknown_once_a_copy_is_stored(
    url: str, clock: ManualClock, name: str
) -> None:
    scene = Scene(url, clock, in_one_step=False, retry_seconds=0.0)
    act = DOORS[name].prepare(scene)
    scene.store.plan = FaultPlan(
        probability=1.0, kinds=(FaultKind.UNAVAILABLE,), methods=frozenset({"acknowledge"})
    )
    for _ in range(2):
        with pytest.raises(shardq.OutcomeUnknown):
            act()
    scene.store.plan = FaultPlan()
    act()
    assert scene.received(DOORS[name].target)[BODY] == DOORS[name].messages


@every_store
@pytest.mark.parametrize("kind", UNKNOWN)
@every_door
def test_who_is_told_that_it_is_unknown_can_repeat_the_call_and_nothing_is_doubled(
    url: str, clock: ManualClock, door: Door, in_one_step: bool, kind: FaultKind
) -> None:
    scene = Scene(url, clock, in_one_step=in_one_step, retry_seconds=0.0)
    act = door.prepare(scene)
    scene.fail(_method(door, in_one_step=in_one_step), kind)
    with pytest.raises(door.unanswered):
        act()
    scene.store.plan = FaultPlan()
    act()
    doubled = door.prepare is replay and kind is FaultKind.LOST_RESPONSE  # another replay sends other copies
    assert scene.received(door.target)[BODY] == door.messages + doubled


@every_store
@pytest.mark.parametrize("gone", [False, True], ids=["claimed again", "removed"])
@pytest.mark.parametrize("name", ["forward", "dead_letter", "replace"])
def test_what_is_not_the_movers_any_more_is_not_moved(
    url: str, clock: ManualClock, name: str, in_one_step: bool, gone: bool
) -> None:
    scene, door = Scene(url, clock, in_one_step=in_one_step, retry_seconds=0.0), DOORS[name]
    act = door.prepare(scene)
    (stored,) = scene.queue.peek()
    if gone:
        scene.sound.queue("q").remove(stored.id)
    else:
        clock.advance(31)
        assert len(scene.sound.queue("q").consumer().receive(1)) == 1
    with pytest.raises(shardq.LeaseLost):
        act()
    assert scene.sound.queue(door.target).counts().ready == 0


@pytest.mark.parametrize("name", ["run", "copy", "replay"])
def test_an_append_whose_first_attempt_may_have_been_forgotten_is_not_repeated(
    url: str, clock: ManualClock, name: str
) -> None:
    """Their ids are derived, so that their age says nothing of when they were sent."""
    scene, door = Scene(url, clock, in_one_step=True, retry_seconds=3_600.0), DOORS[name]
    act = door.prepare(scene)
    inner_append, appends = scene.store.append, []

    def stand_still(request: Any) -> None:
        appends.append(request)
        inner_append(request)
        assert scene.received(door.target)[BODY] == 1
        clock.advance(20 * 60)
        scene.sound.queue(door.target).sweep()
        raise shardq.OutcomeUnknown("no answer")

    scene.store.append = stand_still  # type: ignore[method-assign]
    with pytest.raises(shardq.OutcomeUnknown):
        act()
    assert len(appends) == 1
    assert scene.received(door.target)[BODY] == 0


def _method(door: Door, *, in_one_step: bool) -> str:
    in_one_request = door.prepare is replace or (door.moves and in_one_step)
    return "forward" if in_one_request else "append"
