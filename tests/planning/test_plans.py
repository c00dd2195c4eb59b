"""A plan carries the load that it was made for, and says what would be used up first."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.core.settings import QueueSettings
from shardq.errors import InvalidSetting
from shardq.planning import Plan, Wanted, plan, unit_costs

MOST_SHARDS = {"cassandra": 10_000, "mongodb": 1_000, "postgresql": 100_000, "sqlite": 100_000}
"""Each store's `max_shards`."""

LOADS = st.builds(
    Wanted,
    store=st.sampled_from(sorted(MOST_SHARDS)),
    rate=st.floats(1, 2e6),
    size=st.integers(1, 100_000),
    latency=st.floats(0.05, 60),
    cores=st.integers(1, 64),
)


def share(found: Plan, resource: str) -> float:
    return next(use.share for use in found.uses if use.resource == resource)


@given(LOADS)
def test_its_settings_are_those_of_a_queue_on_that_store(wanted: Wanted) -> None:
    found = plan(wanted)
    settings = QueueSettings(
        shards=int(found.value("shards")),
        time_shards=int(found.value("time_shards")),
        time_shard_seconds=found.value("time_shard_seconds"),
    )
    assert settings.layout.shards * settings.layout.time_shards <= MOST_SHARDS[wanted.store]


@given(LOADS)
def test_a_bundle_and_a_claim_are_filled_within_the_latency(wanted: Wanted) -> None:
    found = plan(wanted)
    for size, processes in (("bundle_messages", "producers"), ("claim_messages", "consumers")):
        if found.value(size) > (found.value("bundle_messages") if processes == "consumers" else 1):
            assert found.value(size) * found.value(processes) / wanted.rate <= wanted.latency


@given(LOADS)
def test_a_claim_takes_no_part_of_a_bundle(wanted: Wanted) -> None:
    found = plan(wanted)
    bundle = found.value("bundle_messages")
    assert bundle <= found.value("claim_messages") <= max(500, bundle)


def test_consumers_that_keep_up_claim_one_bundle_and_busy_ones_more() -> None:
    idle = plan(Wanted(1_000, 1_000, store="sqlite"))
    assert idle.value("claim_messages") == idle.value("bundle_messages")
    busy = plan(Wanted(20_000, 100, 0.005, store="sqlite", consumers=1))
    assert busy.value("claim_messages") > busy.value("bundle_messages")


def test_what_consumers_take_while_they_wait_is_planned_for() -> None:
    wanted, costs = Wanted(1e6, 100, store="cassandra"), unit_costs("cassandra")
    busy = plan(wanted, msgspec.structs.replace(costs, waiting_client=0.0, waiting_server=0.0))
    polling = plan(wanted, msgspec.structs.replace(costs, waiting_client=1e5, waiting_server=1e6))
    for name in ("consumers", "nodes"):
        assert polling.value(name) > busy.value(name)
    few = plan(Wanted(1.0, 1), msgspec.structs.replace(costs, waiting_client=1e5))
    assert share(few, "consumers' processors") > 0.1


@given(LOADS)
def test_processes_and_nodes_are_used_at_most_by_half(wanted: Wanted) -> None:
    found = plan(wanted)
    used = {use.resource: use.share for use in found.uses}
    for resource in ("producers' processors", "consumers' processors", "servers' processors"):
        assert used.get(resource, 0) <= 0.5001


def test_twice_the_rate_needs_twice_the_nodes_when_bundles_are_full() -> None:
    few, many = plan(Wanted(1e6, 512)), plan(Wanted(2e6, 512))
    assert few.value("bundle_messages") == many.value("bundle_messages") == 500
    assert abs(many.value("nodes") - 2 * few.value("nodes")) <= 1


def test_less_latency_makes_smaller_bundles_that_cost_more() -> None:
    patient, hurried = plan(Wanted(100_000, 512, 1.0)), plan(Wanted(100_000, 512, 0.01))
    assert hurried.value("bundle_messages") < patient.value("bundle_messages")
    assert hurried.value("nodes") > patient.value("nodes")


def test_a_million_a_second_is_a_matter_of_nodes() -> None:
    found = plan(Wanted(1e6, 512))
    assert found.feasible
    assert found.value("nodes") > found.wanted.copies
    # And more cores in each need fewer of them
    assert plan(Wanted(1e6, 512, cores=32)).value("nodes") < found.value("nodes")


@given(LOADS)
def test_the_limit_is_what_is_used_most(wanted: Wanted) -> None:
    found = plan(wanted)
    assert found.limit.share == max(use.share for use in found.uses)
    assert [use.share for use in found.uses] == sorted((use.share for use in found.uses), reverse=True)


def test_too_few_consumers_are_the_limit() -> None:
    found = plan(Wanted(1e6, 512, consumers=1))
    assert found.limit.resource == "consumers' processors"
    assert not found.feasible


def test_one_file_has_one_writer() -> None:
    # A file carries so much that bundles are full
    assert plan(Wanted(100_000, 512, store="sqlite")).feasible
    # and not what has to be there so soon that they never are
    hurried = plan(Wanted(100_000, 512, latency=0.001, store="sqlite"))
    assert not hurried.feasible
    assert plan(Wanted(1_000, 512, store="sqlite")).value("nodes") == 1


@pytest.mark.parametrize("store", ["mongodb", "postgresql"])
def test_one_primary_answers_every_request(store: str) -> None:
    found = plan(Wanted(10_000, 512, store=store))
    assert found.feasible and found.value("nodes") == found.wanted.copies
    # More copies take none of its work
    more = plan(Wanted(10_000, 512, store=store, copies=5))
    assert share(more, "the primary's processors") == pytest.approx(share(found, "the primary's processors"))
    assert not plan(Wanted(5e6, 512, store=store)).feasible


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"size": -1}, {"latency": float("nan")}, {"consumers": 0}, {"cores": 0}]
)
def test_a_number_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        Wanted(**{"rate": 1.0, "size": 1, **wrong})  # type: ignore[arg-type]


def test_a_store_of_which_nothing_was_measured_is_refused_with_those_that_were() -> None:
    with pytest.raises(InvalidSetting, match="sqlite"):
        unit_costs("memory")


@pytest.mark.parametrize("store", sorted(MOST_SHARDS))
def test_unit_costs_tell_where_they_are_from(store: str) -> None:
    assert "tools/scaling/measure.py" in unit_costs(store).source
