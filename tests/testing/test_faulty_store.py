from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.requests import Acknowledge, Append, Claim, QueueRecord, Span
from shardq.storage.store import Store
from shardq.testing import BundleFactory, Fault, FaultKind, FaultPlan, FaultyStore, StoreHarness

T = TypeVar("T")
SHARD = Shard("faulty", 0, 0)


@pytest.fixture
def inner(harness: StoreHarness) -> Store:
    store = harness.open()
    store.create_queue(QueueRecord("faulty", b"", 1))
    return store


def plan(kind: FaultKind, nth: int = 1) -> FaultPlan:
    return FaultPlan(faults=(Fault("append", nth, kind),))


@pytest.mark.parametrize(
    ("kind", "error", "stored"),
    [
        (FaultKind.UNAVAILABLE, StoreUnavailable, 0),
        (FaultKind.LOST_REQUEST, OutcomeUnknown, 0),
        (FaultKind.LOST_RESPONSE, OutcomeUnknown, 3),
    ],
)
def test_each_kind_of_fault_does_what_it_says(inner: Store, kind, error, stored) -> None:
    faulty = FaultyStore(inner, plan(kind))
    with pytest.raises(error):
        faulty.append(Append(SHARD, (BundleFactory(inner.now)(3),)))
    assert inner.count(SHARD).ready == stored


def test_only_the_planned_call_of_the_planned_method_fails(inner: Store) -> None:
    faulty = FaultyStore(inner, plan(FaultKind.UNAVAILABLE, nth=2))
    make = BundleFactory(inner.now)
    faulty.append(Append(SHARD, (make(),)))
    assert faulty.count(SHARD).ready == 1
    with pytest.raises(StoreUnavailable):
        faulty.append(Append(SHARD, (make(),)))
    faulty.append(Append(SHARD, (make(),)))
    assert inner.count(SHARD).ready == 2


def test_the_calls_are_recorded_with_their_faults(inner: Store) -> None:
    faulty = FaultyStore(inner, plan(FaultKind.LOST_RESPONSE))
    request = Append(SHARD, (BundleFactory(inner.now)(),))
    with pytest.raises(OutcomeUnknown):
        faulty.append(request)
    faulty.list_queues("f")
    assert [(call.method, call.arguments, call.fault) for call in faulty.calls] == [
        ("append", (request,), FaultKind.LOST_RESPONSE),
        ("list_queues", ("f",), None),
    ]


def test_random_faults_are_the_same_for_the_same_seed() -> None:
    def faults(seed: int) -> list[FaultKind | None]:
        return [FaultPlan(probability=0.3, seed=seed).of("claim", nth) for nth in range(200)]

    assert faults(1) == faults(1)
    assert faults(1) != faults(2)
    assert set(faults(1)) == {None, *FaultKind}


def test_random_faults_keep_to_the_methods_and_kinds_of_the_plan() -> None:
    only = FaultPlan(probability=1.0, kinds=(FaultKind.UNAVAILABLE,), methods=frozenset({"claim"}))
    assert only.of("claim", 1) is FaultKind.UNAVAILABLE
    assert only.of("append", 1) is None
    assert FaultPlan(probability=1.0).of("listen", 1) is None


def test_a_faulty_store_has_the_capabilities_of_the_inner_one(inner: Store) -> None:
    assert FaultyStore(inner, FaultPlan()).capabilities == inner.capabilities


@pytest.mark.parametrize("seed", range(5))
def test_repeating_every_call_gets_each_message_through_once(
    harness: StoreHarness, inner: Store, seed: int
) -> None:
    # Given a store that fails half of all calls
    faulty = FaultyStore(inner, FaultPlan(probability=0.5, seed=seed))
    bundles = [BundleFactory(inner.now)(1 + i % 4) for i in range(12)]
    # When a producer and a consumer repeat each call until it is answered
    for bundle in bundles:
        persist(faulty.append, Append(SHARD, (bundle,)))
    received = []
    while slices := persist(faulty.claim, claim := Claim(SHARD, os.urandom(16), 3, 30_000_000)).slices:
        received += [(each.bundle.id, each.first + i) for each in slices for i in range(each.count)]
        spans = tuple(Span(each.bundle.id, each.first, each.count, claim.token) for each in slices)
        persist(faulty.acknowledge, Acknowledge(SHARD, spans))
    # Then each message came once, and nothing is left
    assert sorted(received) == sorted((bundle.id, i) for bundle in bundles for i in range(bundle.count))
    assert not harness.raw_entries(SHARD)
    assert not harness.raw_bundles(SHARD)


def persist(do: Callable[..., T], *arguments: object) -> T:
    while True:
        try:
            return do(*arguments)
        except ShardqError as error:
            assert error.retryable
