"""A clock that jumps ahead and back: whoever was overtaken meanwhile is told so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import shardq
from shardq.base.clock import microseconds
from shardq.testing import ManualClock

AHEAD = 173.0


class JumpingClock(ManualClock):
    """A clock that can be set back too."""

    def jump(self, seconds: float) -> None:
        self._now += microseconds(seconds)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.mark.parametrize("use", ["ack", "release", "extend", "dead_letter", "receipt"])
def test_what_another_dead_lettered_while_the_clock_was_ahead_is_lost(
    connect: Callable[[], shardq.Client], clock: JumpingClock, use: str
) -> None:
    queue = connect().create_queue("jobs", visibility_timeout=30, max_deliveries=5)
    queue.producer().send(b"a")
    with queue.consumer() as first, connect().queue("jobs").consumer() as second:
        # Given a message that was received, then received and dead-lettered by another 173 s later
        (message,) = first.receive(1)
        clock.jump(AHEAD)
        (again,) = second.receive(1)
        again.dead_letter("its first consumer is slow")
        # When the clock is set back, so that the first lease seems to last, and the first one settles
        clock.jump(-AHEAD)
        # Then it is told, and the message is where the other one put it
        with pytest.raises(shardq.LeaseLost):
            settle(queue, message, use)
    clock.jump(AHEAD)
    assert connect().queue("jobs.dead").counts().ready == 1


def settle(queue: shardq.Queue, message: shardq.Message, use: str) -> None:
    match use:
        case "ack":
            message.ack()
        case "release":
            message.release()
        case "extend":
            message.extend(60)
        case "dead_letter":
            message.dead_letter("late")
        case _:
            queue.ack([message.receipt])
