"""Occurrences take place once each, in order, wherever clients die, whatever is not answered, whoever competes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.base.clock import from_datetime
from shardq.schedules.occurrences import send_due_occurrence
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import context_of
from tests.dying_store import Died

CHANGES = ("update_queue", "reserve_keys", "append", "confirm_keys", "create_queue", "drop_queue")


class Failing(WrappedStore):
    """Ends its client, or leaves it without an answer, before or after one request that changes something."""

    left: int | None = None
    after = False
    error: Callable[[], BaseException] | None = Died  # None: the request is carried out all the same
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method not in CHANGES or self.left is None:
            return super().call(method, do, *args, **kwargs)
        self.left -= 1
        fails = self.left < 0
        if fails:
            self.left = None
        if fails and not self.after:
            self._fail()
        answer = super().call(method, do, *args, **kwargs)
        if fails and self.after:
            self._fail()
        return answer

    def _fail(self) -> None:
        self.meanwhile()
        if self.error is not None:
            raise self.error()


def unanswered() -> BaseException:
    return shardq.OutcomeUnknown("no answer")


class Scene:
    """A queue with a schedule, a client that fails, and a sound one."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        url = f"sqlite:///{folder}/queue.db?synchronous=normal"
        self.sound = shardq.connect(url, clock=self.clock, retry_seconds=0)
        self.sound.create_queue("q", shards=1, time_shards=1, max_deliveries=None)
        self.store = Failing(open_store(url, self.clock))
        self.client = shardq.Client(self.store, retry_seconds=0)
        self.found: list[int] = []

    def turn(self, client: shardq.Client) -> None:
        """Receive and ack all that there is; the moments of occurrences are noted."""
        consumer = client.queue("q").consumer()
        while batch := consumer.receive(10):
            for message in batch:
                moment = datetime.fromisoformat(str(message.headers["shardq-scheduled-for"]))
                self.found.append(from_datetime(moment))
            batch.ack()

    def close(self) -> None:
        self.client.close()
        self.sound.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.mark.parametrize("error", [Died, unanswered])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("request_number", range(6))
def test_a_crash_at_any_request_neither_loses_nor_doubles_an_occurrence(
    scene: Scene, error: Callable[[], BaseException], after: bool, request_number: int
) -> None:
    scene.sound.schedules.create("s", queue="q", every=200_000, count=2)
    due = from_datetime(scene.sound.now()) + 200_000_000_000
    scene.clock.advance(200_000)
    scene.store.error, scene.store.after, scene.store.left = error, after, request_number
    context = context_of(scene.client.queue("q"))
    with contextlib.suppress(Died, shardq.OutcomeUnknown, shardq.StoreUnavailable):
        send_due_occurrence(context, "_shardq/schedules/s")
    scene.store.left = None
    scene.clock.advance(86_400)  # longer than the queue's dedupe_window, too
    scene.turn(scene.sound)
    scene.turn(scene.client)
    assert scene.found == [due]
    scene.clock.advance(200_000)
    scene.turn(scene.sound)
    assert scene.found == [due, due + 200_000_000_000]


@pytest.mark.parametrize("request_number", range(5))
def test_a_client_that_stands_still_while_another_goes_on_doubles_nothing(
    scene: Scene, request_number: int
) -> None:
    scene.sound.schedules.create("s", queue="q", every=60)
    scene.clock.advance(60)

    def meanwhile() -> None:
        for _ in range(3):
            scene.clock.advance(60)
            scene.turn(scene.sound)

    scene.store.meanwhile, scene.store.left = meanwhile, request_number
    scene.store.error = lambda: shardq.StoreUnavailable("it came too late")
    scene.turn(scene.client)
    scene.clock.advance(60)
    scene.turn(scene.client)
    scene.turn(scene.sound)
    assert scene.found == sorted(set(scene.found))
    assert len(scene.found) in (4, 5)  # the first one and the next may be caught up with as one


@pytest.mark.parametrize("change", ["create", "delete", "alter", "pause"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("request_number", range(3))
def test_a_change_that_was_cut_off_can_be_made_again(
    scene: Scene, change: str, after: bool, request_number: int
) -> None:
    schedules = scene.client.schedules
    steps: dict[str, Callable[[], object]] = {
        "create": lambda: schedules.create("s", queue="q", every=60, exist_ok=True),
        "delete": lambda: schedules.delete("s"),
        "alter": lambda: schedules.alter("s", every=30),
        "pause": lambda: schedules.pause("s"),
    }
    if change != "create":
        scene.sound.schedules.create("s", queue="q", every=60)
    scene.store.after, scene.store.left = after, request_number
    try:
        steps[change]()
    except Died:
        scene.store.left = None
        try:
            steps[change]()
        except shardq.ScheduleNotFound:
            assert change == "delete"
    scene.clock.advance(60)
    scene.turn(scene.sound)
    assert len(scene.found) == (1 if change in ("create", "alter") else 0)
    assert len(scene.sound.schedules.list()) == (change != "delete")


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_those_of_the_model(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    period = 60_000_000
    scene.sound.schedules.create("s", queue="q", every=60)
    first = from_datetime(scene.sound.now()) + period
    expected, turned, paused = list[int](), first - period, False
    for _ in range(60):
        what = chance.choice(["wait", "wait", "turn", "turn", "fail", "pause", "resume", "purge", "alter"])
        now = scene.clock.now()
        latest = first + (now - first) // period * period
        if what == "wait":
            scene.clock.advance(chance.choice([1, 29, 60, 61, 600]))
            continue
        if what in ("turn", "fail") and not paused and latest > turned:
            expected.append(latest)
            turned = latest
        if what == "turn":
            scene.turn(chance.choice([scene.client, scene.sound]))
        elif what == "fail":
            scene.store.left, scene.store.after = chance.randrange(5), chance.random() < 0.5
            scene.store.error = chance.choice([Died, unanswered])
            with contextlib.suppress(Died, shardq.OutcomeUnknown, shardq.StoreUnavailable):
                scene.turn(scene.client)
            scene.store.left = None
            scene.clock.advance(3)
            scene.turn(scene.sound)
            latest = first + (scene.clock.now() - first) // period * period
            if not paused and latest > turned:
                expected.append(latest)
                turned = latest
        elif what == "pause":
            scene.sound.schedules.pause("s")
            paused = True
        elif what == "resume":
            scene.client.schedules.resume("s")
            turned = max(turned, latest) if paused else turned
            paused = False
        elif what == "alter":
            scene.sound.schedules.alter("s", body=b"%d" % now)
        else:
            scene.sound.queue("q").purge()
    assert scene.found == expected


@pytest.mark.parametrize("request_number", range(3))
@pytest.mark.parametrize("first", ["create", "delete"])
@pytest.mark.parametrize("others", ["create", "delete", "both"])
def test_a_schedule_that_was_created_lives_whoever_creates_and_deletes_it_meanwhile(
    scene: Scene, first: str, others: str, request_number: int
) -> None:
    """One client stands still before any of its requests, and others create and delete the same schedule."""
    if first == "delete":
        scene.sound.schedules.create("s", queue="q", every=60)
    told: list[str] = []

    def tell(client: shardq.Client, change: str) -> None:
        try:
            if change == "create":
                client.schedules.create("s", queue="q", every=60)
            else:
                client.schedules.delete("s")
            told.append(change)
        except (shardq.ScheduleExists, shardq.ScheduleNotFound):
            return

    def meanwhile() -> None:
        for change in ("delete", "create") if others == "both" else (others,):
            tell(scene.sound, change)

    scene.store.meanwhile, scene.store.left, scene.store.error = meanwhile, request_number, None
    tell(scene.client, first)
    there = len(scene.sound.schedules.list())
    if others == "create":
        assert there == told.count("create") + (first == "delete") - told.count("delete")
    else:  # two may delete the same one
        assert there == 1 if told[-1] == "create" else there <= told.count("create")
    scene.clock.advance(60)
    scene.turn(scene.sound)
    assert len(scene.found) == there
