"""A store that fails by a plan, to prove that its callers get along with it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, ParamSpec, TypeVar

import msgspec

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["Call", "Fault", "FaultKind", "FaultPlan", "FaultyStore"]


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


P = ParamSpec("P")
T = TypeVar("T")


class Call(msgspec.Struct, frozen=True):
    """A call that the store was asked for, and the fault that it met."""

    method: str
    arguments: tuple[Any, ...]
    fault: FaultKind | None


class FaultyStore(WrappedStore):
    """Passes calls on to a store, but for those that the plan lets fail. ``calls`` is the record of all.

    >>> from shardq.base.clock import SystemClock
    >>> from shardq.storage.opening import open_store
    >>> from shardq.testing import Fault
    >>> plan = FaultPlan(faults=(Fault("append", 1, FaultKind.LOST_RESPONSE),))
    >>> store = FaultyStore(open_store(url, SystemClock()), plan)
    """

    def __init__(self, inner: Store, plan: FaultPlan) -> None:
        super().__init__(inner)
        self.plan = plan
        self.calls: list[Call] = []
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Note the call, and do it unless the plan lets it fail."""
        fault = self._record(method, args)
        if fault is FaultKind.UNAVAILABLE:
            raise StoreUnavailable(f"{method}: the plan has the store unreachable; repeat the call")
        if fault is FaultKind.LOST_REQUEST:
            raise OutcomeUnknown(f"{method}: the plan lost the request; repeat the call")
        result = do(*args, **kwargs)
        if fault is FaultKind.LOST_RESPONSE:
            raise OutcomeUnknown(f"{method}: the plan lost the response; repeat the call")
        return result

    def _record(self, method: str, arguments: tuple[Any, ...]) -> FaultKind | None:
        with self._lock:
            self._seen[method] += 1
            fault = self.plan.of(method, self._seen[method])
            self.calls.append(Call(method, arguments, fault))
            return fault
