"""When a store shall fail, and how."""

from __future__ import annotations

import random
from enum import Enum

import msgspec

__all__ = ["Fault", "FaultKind", "FaultPlan"]


class FaultKind(Enum):
    """The fate of a request that fails."""

    UNAVAILABLE = "unavailable"  # StoreUnavailable, and nothing was done
    LOST_REQUEST = "lost request"  # OutcomeUnknown, and nothing was done
    LOST_RESPONSE = "lost response"  # OutcomeUnknown, although it was done


class Fault(msgspec.Struct, frozen=True):
    """The ``nth`` call of a method, counted from 1, fails in this way."""

    method: str
    nth: int
    kind: FaultKind


class FaultPlan(msgspec.Struct, frozen=True):
    """Faults at given calls and, with a probability and a seed, at random ones.

    ``methods`` limits the random faults to some methods; ``listen`` never fails at random.

    >>> FaultPlan(faults=(Fault("append", 2, FaultKind.LOST_RESPONSE),)).of("append", 2)
    <FaultKind.LOST_RESPONSE: 'lost response'>
    """

    faults: tuple[Fault, ...] = ()
    probability: float = 0.0
    seed: int = 0
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    methods: frozenset[str] | None = None

    def of(self, method: str, nth: int) -> FaultKind | None:
        """Return the fault of this call, the same whenever it is asked; None: the call goes well."""
        for fault in self.faults:
            if (fault.method, fault.nth) == (method, nth):
                return fault.kind
        return self._random(method, nth)

    def _random(self, method: str, nth: int) -> FaultKind | None:
        if method == "listen" or (self.methods is not None and method not in self.methods):
            return None
        dice = random.Random(f"{self.seed} {method} {nth}")
        return dice.choice(self.kinds) if dice.random() < self.probability else None
