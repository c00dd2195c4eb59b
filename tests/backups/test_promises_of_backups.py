"""The check of restored queues finds each broken promise."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.backups.under_load import ENOUGH, Moments, Times, broken, times_of
from tools.faults.history import Event, Phase

BACKUP = Moments(started=100, ended=200)


@pytest.fixture
def times() -> Times:
    """What was done to enough messages of each kind: sent or acked before, during and after a backup."""
    events = []
    for number in range(ENOUGH):
        before = [f"{kind}{number}" for kind in ("kept", "acked", "during", "changing")]
        events += [done(1, 2, "send", *before), done(3, 4, "ack", f"acked{number}")]
        events += [done(150, 160, "ack", f"during{number}"), done(210, 220, "ack", f"changing{number}")]
        events += [done(250, 260, "send", f"after{number}")]
    return times_of(chain(*events))


def done(began: int, ended: int, verb: str, *bodies: str) -> list[Event]:
    """An operation that succeeded."""
    return [
        Event(at=at, actor="p1", number=1, verb=verb, phase=phase, bodies=bodies)
        for at, phase in ((began, Phase.INVOKE), (ended, Phase.OK))
    ]


def whole() -> dict[str, int]:
    return {f"{kind}{number}": 1 for kind in ("kept", "changing") for number in range(ENOUGH)}


def test_a_backup_may_have_what_was_acked_while_it_was_made(times: Times) -> None:
    assert not broken(times, BACKUP, whole())
    assert not broken(times, BACKUP, whole() | {"during7": 1})


@pytest.mark.parametrize(
    ("restored", "promise"),
    [
        ({"kept3": 0}, "lost"),
        ({"changing3": 0}, "lost"),
        ({"acked3": 1}, "acked before and there"),
        ({"after3": 1}, "sent later and there"),
        ({"strange": 1}, "never sent"),
        ({"kept3": 2}, "twice"),
    ],
)
def test_each_broken_promise_is_named(times: Times, restored: dict[str, int], promise: str) -> None:
    found = {body: count for body, count in (whole() | restored).items() if count}
    assert broken(times, BACKUP, found) == {promise: list(restored)}


def test_a_load_that_says_nothing_is_no_success() -> None:
    with pytest.raises(AssertionError, match="too small"):
        broken(times_of(done(1, 2, "send", "a")), BACKUP, {"a": 1})
