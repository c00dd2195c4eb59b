"""Messages that block their groups: nothing is received behind one before somebody lets it be delivered again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .history import Event, Phase

__all__ = ["behind_blocks"]

UNSURE = 60_000_000_000  # nanoseconds for which a redrive that was not answered may still be carried out


class _Call(NamedTuple):
    """A call that was made; ``ended`` and ``outcome`` are those of its client's log, if it lived to write them."""

    invoked: Event
    outcome: Event | None

    @property
    def over(self) -> int:
        """From when on it changes nothing any more."""
        known = self.outcome is not None and self.outcome.phase is not Phase.UNKNOWN
        return self.outcome.at if self.outcome and known else self.invoked.at + UNSURE


def behind_blocks(events: Sequence[Event], is_later: Callable[[str, str], bool]) -> list[str]:
    """The messages that were received by a call which began when an earlier one of their group blocked it.

    ``is_later`` says whether the second of two bodies was for sure sent to the group of the first one after it.
    """
    blocks, redrives, answers = (list(_calls(events, verb)) for verb in ("block", "unblock", "answer"))
    return sorted(
        {
            body
            for block in blocks
            if block.outcome is not None and block.outcome.phase is Phase.OK
            for body in _received_before_its_end(block, redrives, answers)
            if is_later(block.invoked.bodies[0], body)
        }
    )


def _calls(events: Iterable[Event], verb: str) -> Iterator[_Call]:
    outcomes = {(each.actor, each.number): each for each in events if each.phase is not Phase.INVOKE}
    for event in events:
        if event.verb == verb and event.phase is Phase.INVOKE:
            yield _Call(event, outcomes.get((event.actor, event.number)))


def _received_before_its_end(
    block: _Call, redrives: Sequence[_Call], answers: Sequence[_Call]
) -> Iterator[str]:
    """What came between the block and the next redrive, or the moment at which the blocking message came again.

    It comes again by itself if it was received behind a message of its group whose lease ends, or that is released.
    """
    assert block.outcome is not None
    begin, (blocking,) = block.outcome.at, block.invoked.bodies
    if any(each.invoked.at < begin and each.over > block.invoked.at for each in redrives):
        return
    received = [
        (each.invoked.at, each.outcome.at, [one.body for one in each.outcome.deliveries])
        for each in answers
        if each.outcome is not None and each.outcome.at > begin
    ]
    ends = [each.invoked.at for each in redrives if each.invoked.at >= begin]
    ends += [invoked for invoked, _, bodies in received if blocking in bodies]
    end = min(ends, default=None)
    for invoked, answered, bodies in received:
        if begin <= invoked and (end is None or answered < end):
            yield from bodies
