"""The expectations of random histories allow what is allowed, in orders of steps that chance rarely finds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from shardq.testing import ManualClock
from tests.api.test_features_together import History

ONE, OTHER = 0, 3  # consumers of one queue: the first may claim ahead
AHEAD = 5


class First(random.Random):
    """Chooses the first of all things, so that a test says what happens."""

    def random(self) -> float:
        return 0.99

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start


class Told(History):
    """A history of one group in one queue."""

    def _options(self) -> dict[str, Any]:
        return {"group": "g1"}

    def places(self) -> list[int]:
        return [sent.place for sent in self.sent.values()]


@pytest.fixture
def tell(url: str, clock: ManualClock) -> Iterator[Callable[..., Told]]:
    told: list[Told] = []

    def begin(*, prefetch: bool) -> Told:
        told.append(Told(url, clock, 0, prefetch=prefetch, lost=0.0, most_lanes=1, blocks=True, dice=First()))
        return told[-1]

    yield begin
    for history in told:
        for consumer in history.consumers:
            consumer.close()
        history.close()


def bodies(messages: Sequence[Any]) -> list[bytes]:
    return [message.body for message in messages]


@pytest.mark.parametrize("let_go", [History.release, History.give_back, History.rewrite, History.dead_letter])
def test_what_was_sent_in_bulk_goes_back_with_what_was_sent_just_before_it(
    tell: Callable[..., Told], let_go: Callable[[Told], None]
) -> None:
    history = tell(prefetch=False)
    history.send()
    history.send_many()
    assert bodies(history.take(ONE, 10)) == [b"1", b"2"]
    let_go(history)
    assert not history.is_held(b"2")
    history.take(OTHER, 1)  # one message: the other one is held by nobody


def test_every_message_has_a_place_of_its_own_in_the_order_of_the_sends(tell: Callable[..., Told]) -> None:
    history = tell(prefetch=False)
    for send in (history.send, history.send_many, history.send_many, history.send):
        send()
    assert history.places() == sorted(set(history.places()))


@pytest.mark.parametrize("limit", [1, 10])
def test_what_is_handed_out_behind_a_lease_that_is_over_goes_with_it(
    tell: Callable[..., Told], clock: ManualClock, limit: int
) -> None:
    """The port counts a lease that is over while nobody took the front, so what was claimed with it can be started."""
    history = tell(prefetch=True)
    for _ in range(AHEAD):
        history.send()
    assert bodies(history.take(ONE, 1, wait=30)) == [b"1"]  # and no room is left for half of what may wait
    clock.advance(12)
    history.lapse()
    assert bodies(history.take(ONE, 1)) == [b"2"]
    assert bodies(history.take(OTHER, limit))[:2] == [b"1", b"2"][:limit]


def test_the_error_of_a_history_tells_what_was_done(
    tell: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tell(prefetch=False)
    monkeypatch.setattr(history, "actions", {"send": 1})
    monkeypatch.setattr(history, "drain", lambda: history.end([b"unknown"]))
    with pytest.raises(KeyError) as caught:
        history.run()
    (story,) = caught.value.__notes__
    lines = story.splitlines()
    assert sum("-- send" in line for line in lines) == sum("append Append(" in line for line in lines) > 50
    assert all(f" {threading.current_thread().name}: " in line for line in lines[1:])
