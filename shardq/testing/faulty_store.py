"""A store that fails by a plan, to prove that its callers get along with it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import msgspec

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.fault_plan import FaultKind, FaultPlan

__all__ = ["Call", "FaultyStore"]

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
