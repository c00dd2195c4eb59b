"""A unique key has one message at a time, whoever comes between any two requests of whoever uses it, or dies there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import store_of
from tests.dying_store import Died

P = ParamSpec("P")
T = TypeVar("T")

KEY = "k"
CHANGES = {"compare_and_set_keys", "append", "find", "remove", "claim", "acknowledge", "forward", "release"}


class Intruded(WrappedStore):
    """Before a call of a certain number something else happens, or the process ends there."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls = 0
        self.at: int | None = None
        self.act: Callable[[], object] = lambda: None

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if method in CHANGES:
            self.calls += 1
            if self.calls - 1 == self.at:
                self.act()
        return super().call(method, do, *args, **kwargs)


class World:
    """A queue, those who use one key of it, and what they were told."""

    def __init__(self, url: str, clock: ManualClock, history: float) -> None:
        self.clock, self.numbers = clock, itertools.count()
        self.client = shardq.Client(open_store(url, clock), retry_seconds=0.0)
        self.settings = {"shards": 2, "time_shards": 2, "max_deliveries": None, "history_retention": history}
        self.queue = self.client.create_queue("q", **self.settings)  # type: ignore[arg-type]
        self.consumer = self.queue.consumer()
        self.kept: set[bytes] = set()  # of sends that were reported as stored
        self.refused: set[bytes] = set()
        self.acked: Counter[bytes] = Counter()  # how often it had been delivered then
        self.unanswered: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.held: list[shardq.Message] = []
        self.order: list[bytes] = []
        self.ids: dict[str, bytes] = {}
        self.destroyed = self.replaced = False

    def send(self, mode: shardq.OnConflict, queue: shardq.Queue | None = None) -> None:
        body = b"%d" % next(self.numbers)
        try:
            identity = (queue or self.queue).producer().send(body, unique_key=KEY, on_conflict=mode)
        except shardq.UniqueKeyTaken:
            self.refused.add(body)
            return
        except Died:
            self.unanswered.add(body)
            self.replaced = self.replaced or mode == "replace"
            raise
        found = self.queue.get(identity)
        if self.ids.get(identity, found.body if found else body) != body:
            self.refused.add(body)
            return
        self.ids[identity] = body
        self.kept.add(body)
        self.replaced = self.replaced or mode == "replace"

    def keep(self) -> None:
        self.send("keep")

    def raise_(self) -> None:
        self.send("raise")

    def replace(self) -> None:
        self.send("replace")

    def hold(self, queue: shardq.Queue | None = None) -> None:
        batch = (queue.consumer() if queue else self.consumer).receive(10)
        self.held += batch
        self.delivered.update(batch.bodies)
        self.order += batch.bodies
        self.ids.update({message.id: message.body for message in batch})

    def ack(self, queue: shardq.Queue | None = None) -> None:
        self.hold(queue)
        while self.held:
            message = self.held.pop()
            message.ack()
            self.acked[message.body] = self.delivered[message.body]

    def turn_over(self) -> None:
        """Ack what there is, and send another message."""
        self.ack()
        self.keep()

    def give_back(self) -> None:
        self.hold()
        while self.held:
            self.held.pop().release()

    def change(self, queue: shardq.Queue | None = None) -> None:
        """Release with another body."""
        self.hold(queue)
        while self.held:
            message, body = self.held.pop(), b"%d" % next(self.numbers)
            message.release(body=body)
            self.kept = self.kept - {message.body} | {body}
            self.replaced = True

    def lapse(self) -> None:
        """Let the lease of what is held run out."""
        self.hold()
        self.clock.advance(self.queue.settings.visibility_timeout + 1)
        self.held.clear()

    def remove(self, queue: shardq.Queue | None = None) -> None:
        self.destroyed = (queue or self.queue).remove(unique_key=KEY) or self.destroyed

        self.held.clear()

    def purge(self) -> None:
        self.destroyed = True
        self.held.clear()
        self.queue.purge()

    def sweep(self) -> None:
        self.clock.advance(61)
        self.held.clear()
        self.queue.sweep()

    def recreate(self) -> None:
        self.destroyed = True
        self.held.clear()
        self.client.delete_queue("q")
        self.queue = self.client.create_queue("q", **self.settings)  # type: ignore[arg-type]
        self.consumer = self.queue.consumer()

    def nothing(self) -> None:
        """Do nothing."""

    def check(self) -> None:
        """One message is there at most, none that was refused, and none of those that were kept is missing."""
        held = len(self.held)
        self.hold()
        assert len(self.held) <= 1, f"{held} messages of the key were held, and now {self.held}"
        for _ in range(3):
            self.clock.advance(301)
            self.held.clear()
            self.hold()
            assert len(self.held) <= 1, self.held
            for message in self.held:
                message.ack()
        assert not self.refused & set(self.delivered), "a message came whose send was refused"
        assert all(self.delivered[body] == times for body, times in self.acked.items()), (
            "a message came again"
        )
        if self.unanswered:
            assert self.order == sorted(self.order), "a message came after the one that replaced it"
        if not self.destroyed:
            missing = self.kept - set(self.delivered)
            came = (self.kept | self.unanswered) & set(self.delivered)
            assert not missing or (self.replaced and came), f"{missing} is lost"
        self.clock.advance(61)
        self.queue.sweep()
        assert not store_of(self.queue).list_keys("q")
        assert not list(self.queue.peek())


GIVEN = [World.nothing, World.keep, World.hold, World.lapse, World.give_back]
ACTS = [
    World.keep, World.raise_, World.replace, World.hold, World.ack, World.give_back, World.change, World.lapse,
    World.turn_over, World.remove, World.purge, World.sweep, World.recreate,
]  # fmt: skip
OPERATIONS: dict[str, Callable[[World, shardq.Queue], None]] = {
    "keep": lambda world, queue: world.send("keep", queue),
    "raise": lambda world, queue: world.send("raise", queue),
    "replace": lambda world, queue: world.send("replace", queue),
    "ack": World.ack,
    "release": World.change,
    "remove": World.remove,
}


def _requests(
    url: str, clock: ManualClock, given: str, operation: str, act: Callable[[World], None], at: int
) -> bool:
    """Let somebody act before one of the requests of an operation; False when it makes fewer."""
    world = World(url, clock, history=at % 2 * 3_600.0)
    if given != "nothing":
        world.keep()
    getattr(world, given)()
    store = Intruded(open_store(url, clock))
    queue = shardq.Client(store, retry_seconds=0.0).queue("q")
    store.calls, store.at, store.act = 0, at, lambda: act(world)
    with suppress(Died, shardq.LeaseLost, shardq.QueueNotFound):
        OPERATIONS[operation](world, queue)
    if store.calls <= at:
        return False
    store.at = None
    world.check()
    return True


def _die(_: World) -> None:
    raise Died


@pytest.mark.long
@pytest.mark.parametrize("given", [each.__name__ for each in GIVEN])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("act", [*ACTS, _die], ids=lambda act: act.__name__.strip("_"))
def test_whatever_happens_between_two_requests_a_key_has_one_message(
    tmp_path_factory: pytest.TempPathFactory, given: str, operation: str, act: Callable[[World], None]
) -> None:
    for at in range(30):
        folder = tmp_path_factory.mktemp("between")
        if not _requests(f"sqlite:///{folder}/q.db", ManualClock(), given, operation, act, at):
            break
