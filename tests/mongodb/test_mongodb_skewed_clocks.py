"""Clients whose clocks are wrong lose nothing, double nothing and are never early."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import cast

import pytest

from shardq.base.shard import Shard
from shardq.storage.mongodb import session
from shardq.storage.mongodb.session import Session, clock_leads
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Claimed, Fenced, ShardCounts, Span
from shardq.testing import BundleFactory
from tests.mongodb.interruption import interrupted_client

pytestmark = pytest.mark.server

MINUTE = 60_000_000


@pytest.fixture(params=[-5 * MINUTE, -MINUTE, MINUTE, 5 * MINUTE])
def skewed(
    open_store: Callable[..., MongoStore], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> MongoStore:
    """A client on a machine whose time of day is wrong."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + request.param / 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: int(right() * 1e9) + request.param * 1000)
    return open_store()


def claim(store: MongoStore, shard: Shard, lease: int = MINUTE) -> tuple[Claimed, tuple[Span, ...]]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, 100, lease))
    return claimed, tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)


def test_the_time_is_the_servers_whatever_the_client_says(skewed: MongoStore, store: MongoStore) -> None:
    assert abs(skewed.now() - store.now()) < 1_000_000


def test_every_step_works_whatever_the_clock_of_the_client_says(
    skewed: MongoStore, store: MongoStore, shard: Shard
) -> None:
    for sender, receiver in ((skewed, store), (store, skewed)):
        bundle = BundleFactory(sender.now)(3)
        sender.append(Append(shard, (bundle,)))
        claimed, spans = claim(receiver, shard)
        assert [each.bundle for each in claimed.slices] == [bundle]
        sender.append(Append(shard, (bundle,)))
        assert receiver.acknowledge(Acknowledge(shard, spans)) == Fenced()
        sender.append(Append(shard, (bundle,)))
        assert store.count(shard) == ShardCounts()
        assert skewed.drop_if_empty(shard)
        assert store.shards(shard.queue) == ()


def test_a_delay_and_a_lease_last_as_long_as_they_say(
    skewed: MongoStore, store: MongoStore, shard: Shard
) -> None:
    skewed.append(Append(shard, (BundleFactory(skewed.now)(delay=1.5),)))
    assert claim(store, shard)[1] == ()
    assert claim(skewed, shard)[1] == ()
    time.sleep(1.55)
    assert len(claim(skewed, shard, lease=1_500_000)[1]) == 1
    assert claim(store, shard)[1] == ()
    time.sleep(1.55)
    assert len(claim(store, shard)[1]) == 1


@pytest.mark.parametrize("skew", [-5 * MINUTE, -1_000_000, 1_000_000, 5 * MINUTE])
def test_a_bundle_whose_id_was_made_at_another_time_is_delivered_and_finished(
    store: MongoStore, shard: Shard, skew: int
) -> None:
    made = BundleFactory(lambda: store.now() + skew)(3)
    bundle = Bundle(made.id, 0, store.now(), store.now(), 3, made.data)
    store.append(Append(shard, (bundle,)))
    claimed, spans = claim(store, shard)
    assert [each.bundle for each in claimed.slices] == [bundle]
    store.acknowledge(Acknowledge(shard, spans))
    store.append(Append(shard, (bundle,)))
    assert store.count(shard) == ShardCounts()


@pytest.mark.parametrize("behind", [0, 1, 500, 900, 999])
@pytest.mark.parametrize("slower", [-5_000, -300, 0, 300, 999, 5_000])
def test_no_measurement_of_the_servers_clock_is_ahead_of_it(
    monkeypatch: pytest.MonkeyPatch, behind: int, slower: int
) -> None:
    # Given a server whose clock fell behind what is known, or went ahead of it, by so many microseconds
    true = 10 * MINUTE
    # When its answers tell whole milliseconds, rounded down
    monkeypatch.setattr(session, "_sample", lambda _: true - behind)
    (lead,) = clock_leads(cast(Session, None), true + slower)
    # Then nothing is due here before it is there
    assert true - 1_000 < lead <= true


def test_a_clock_that_goes_on_as_it_did_is_asked_for_once_or_twice(
    store: MongoStore, mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given how far the server's clock is ahead
    (lead,) = clock_leads(store.session, None)
    client, interruption = interrupted_client(mongodb_url, monkeypatch)

    def asked(known: int | None) -> tuple[int, int]:
        with interruption.before(99, lambda: None):
            (found,) = clock_leads(client.session, known)
        return found, len(interruption.commands)

    # Then an answer that agrees will do; where none does it is measured anew
    assert min(times for _, times in [asked(lead) for _ in range(20)]) == 1
    for known in (None, lead + MINUTE, lead + 60_000, lead - MINUTE):
        found, times = asked(known)
        assert times == 8
        assert abs(found - lead) < MINUTE
    client.close()
