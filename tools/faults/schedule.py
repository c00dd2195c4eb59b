"""Which faults come when: all of it follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

__all__ = ["Step", "schedule"]


class Step(msgspec.Struct, frozen=True):
    """One fault: when it begins, whom it hits, how long it lasts, how strong it is."""

    at: float  # seconds from the beginning of the round
    fault: str
    victim: float  # from 0 to 1: a place among those that can be hit
    seconds: float
    strength: float  # from 0 to 1


def schedule(
    faults: Sequence[str],
    slow: Sequence[str],
    *,
    seed: str,
    seconds: float,
    gap: float,
    lasting: float,
    rest: float = 0.0,
) -> list[Step]:
    """Faults in random order, each kind about as often, about ``gap`` seconds apart, each ``lasting`` so long.

    Those in ``slow`` hit a node and leave ``rest`` seconds until the next of them, so that a majority is there.
    """
    dice = random.Random(seed)
    steps: list[Step] = []
    waiting: list[str] = []
    slow_from = at = dice.uniform(0.5, 1.0) * gap
    while at < seconds:
        if not waiting:
            waiting = dice.sample([*faults, *slow], len(faults) + len(slow))
        allowed = [name for name in waiting if name not in slow or at >= slow_from]
        name = allowed[0] if allowed else dice.choice(list(faults))
        if name in waiting:
            waiting.remove(name)
        step = Step(at, name, dice.random(), dice.uniform(0.5, 1.5) * lasting, dice.random())
        steps.append(msgspec.structs.replace(step, at=round(at, 2), seconds=round(step.seconds, 2)))
        if name in slow:
            slow_from = at + step.seconds + rest
        at += dice.uniform(0.3, 1.7) * gap
    return steps
