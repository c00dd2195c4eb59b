"""Tools that test a store and its callers: the conformance suite, a manual clock, a faulty store.

The suite is :class:`shardq.testing.conformance.StoreConformance` and the state machine
:func:`shardq.testing.state_machine.state_machine_for`. They need pytest and Hypothesis and are therefore imported from
where they are; the objects here need neither.
"""

from __future__ import annotations

from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.bundle_factory import BundleFactory
from shardq.testing.clock import ManualClock, ManualTimer
from shardq.testing.faulty_store import Call, Fault, FaultKind, FaultPlan, FaultyStore
from shardq.testing.harness import ApplicationTransaction, RawEntry, RawQueue, RawState, StoreHarness

__all__ = [
    "ApplicationTransaction",
    "BundleFactory",
    "Call",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "FaultyStore",
    "ManualClock",
    "ManualTimer",
    "RawEntry",
    "RawQueue",
    "RawState",
    "StoreHarness",
    "WrappedStore",
]
