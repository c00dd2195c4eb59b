"""Whoever lets expired messages go, or makes room in a full queue, may end at any request: none is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ParamSpec, TypeVar

import msgspec
import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.store import Capabilities, Store
from shardq.testing import ManualClock, WrappedStore
from shardq.testing.seam import store_of
from tests.dying_store import Died

P = ParamSpec("P")
T = TypeVar("T")

CHANGES = {
    "acknowledge", "append", "claim", "confirm_keys", "extend", "forward", "release", "remove", "reserve_keys",
}  # fmt: skip


class CutOff(WrappedStore):
    """Ends the process at a request that changes something: before it is carried out, or when it was."""

    def __init__(self, inner: Store, *, in_one_step: bool, after: bool) -> None:
        super().__init__(inner)
        self._in_one_step, self._after = in_one_step, after
        self.left: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        own = self.inner.capabilities
        return msgspec.structs.replace(own, forward_across_shards=self._in_one_step)

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.left is None or method not in CHANGES:
            return super().call(method, do, *args, **kwargs)
        self.left -= 1
        if self.left == -1 and not self._after:
            raise Died
        answer = super().call(method, do, *args, **kwargs)
        if self.left == -1:
            raise Died
        return answer


@pytest.fixture(params=[True, False], ids=["in one step", "step by step"])
def in_one_step(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["before", "after"])
def store(
    url: str, clock: ManualClock, in_one_step: bool, request: pytest.FixtureRequest
) -> Iterator[CutOff]:
    store = CutOff(open_store(url, clock), in_one_step=in_one_step, after=request.param)
    yield store
    store.close()


@pytest.fixture
def sound(url: str, clock: ManualClock, in_one_step: bool) -> Iterator[shardq.Client]:
    with shardq.Client(CutOff(open_store(url, clock), in_one_step=in_one_step, after=False)) as client:
        yield client


def each_cut(store: CutOff, prepare: Callable[[str], Callable[[], object]]) -> Iterator[str]:
    """Do something to queue after queue, ended at one request later each time, until it is not ended."""
    for number in range(1_000):
        name = f"q{number}"
        do = prepare(name)
        store.left = number
        with suppress(Died):
            do()
        ended = store.left < 0
        store.left = None
        yield name
        if not ended:
            assert number > 3
            return
    raise AssertionError("it never ended")


def bodies(queue: shardq.Queue) -> Counter[bytes]:
    return Counter(message.body for message in queue.peek(1_000))


@pytest.mark.parametrize("dead_letters", [True, False])
def test_what_has_expired_becomes_a_dead_letter_once_and_what_has_not_stays(
    store: CutOff, sound: shardq.Client, clock: ManualClock, dead_letters: bool
) -> None:
    def prepare(name: str) -> Callable[[], object]:
        queue = sound.create_queue(name, shards=1, time_shards=1, dead_letter_expired=dead_letters)
        for body, ttl in ((b"a", 5), (b"keep 1", None), (b"b", 5), (b"c", 5), (b"keep 2", None)):
            queue.producer().send(body, ttl=ttl)
        clock.advance(10)
        client = shardq.Client(store, retry_seconds=0)
        return client.queue(name).sweep

    for name in each_cut(store, prepare):
        clock.advance(100)  # what the process held is free again
        queue = sound.queue(name)
        queue.sweep()
        assert bodies(queue) == Counter([b"keep 1", b"keep 2"])
        letters = bodies(sound.queue(f"{name}.dead"))
        assert letters == (Counter([b"a", b"b", b"c"]) if dead_letters else Counter())


def test_a_full_queue_loses_no_more_than_the_oldest(
    store: CutOff, sound: shardq.Client, clock: ManualClock
) -> None:
    def prepare(name: str) -> Callable[[], object]:
        queue = sound.create_queue(name, shards=2, time_shards=1, max_messages=10, overflow="drop_oldest")
        for number in range(10):
            queue.producer().send(b"%d" % number)
            clock.advance(0.1)
        client = shardq.Client(store, retry_seconds=0)
        return lambda: client.queue(name).producer().send_many([b"10", b"11"])

    for name in each_cut(store, prepare):
        clock.advance(100)
        client = shardq.Client(store_of(sound), retry_seconds=0)
        client.queue(name).producer().send(b"12")
        left = bodies(client.queue(name))
        assert left.total() <= 10
        assert set(left.values()) == {1}
        assert left.keys() >= {b"%d" % number for number in (*range(3, 10), 12)}
