"""How many requests the server gets for an operation. Each of them is a wait for the network."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest

from shardq.base.shard import Shard
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, Span
from shardq.testing import BundleFactory, ManualClock
from tests.postgresql.lossy_proxy import PostgresProxy

pytestmark = pytest.mark.server
MINUTE = 60_000_000


@pytest.fixture
def counted(proxied: str, shard: Shard) -> Iterator[PostgresStore]:
    """A store behind the proxy. Its clock stands still, so nothing is done that is done now and then."""
    store = PostgresStore(parse(proxied)[0], clock=ManualClock())
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(),)))  # which lists the shard
    store.acknowledge(Acknowledge(shard, taken(store, shard)))
    yield store
    store.close()


def taken(store: PostgresStore, shard: Shard, limit: int = 500) -> tuple[Span, ...]:
    token = os.urandom(16)
    slices = store.claim(Claim(shard, token, limit, MINUTE)).slices
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)


@pytest.mark.parametrize(
    ("bundles", "messages", "size", "claim"),
    [
        (1, 1, 100, ["WITH"]),
        (16, 1, 100, ["WITH"]),
        (1, 500, 250_000, ["WITH", "SELECT"]),  # the data is read when the locks of the claim are released
        (1, 500, 1000, ["WITH"]),
    ],
    ids=["a message", "sends of 16 threads", "a bundle of 500", "a short bundle of 500"],
)
def test_an_append_is_one_request_while_nobody_waits_and_so_are_a_claim_and_an_ack(
    counted: PostgresStore,
    proxy: PostgresProxy,
    shard: Shard,
    bundles: int,
    messages: int,
    size: int,
    claim: list[str],
) -> None:
    make = BundleFactory(counted.now)
    for _ in range(2):
        proxy.arm(-1)
        counted.append(
            Append(shard, tuple(make(messages, data=b"x" * size) for _ in range(bundles)), fresh=True)
        )
        assert proxy.commands == ["WITH"]
        proxy.arm(-1)
        spans = taken(counted, shard)
        assert proxy.commands == claim
        proxy.arm(-1)
        assert counted.acknowledge(Acknowledge(shard, spans)) == Fenced()
        assert proxy.commands == ["WITH"]


def test_acks_of_parts_of_a_bundle_are_one_request_each_but_the_last(
    counted: PostgresStore, proxy: PostgresProxy, shard: Shard
) -> None:
    make = BundleFactory(counted.now)
    counted.append(Append(shard, (make(10, data=b"x" * 5000), make(1)), fresh=True))
    parts = [taken(counted, shard, limit) for limit in (4, 2, 5)]
    fronts = [(Span(span.bundle_id, at, 1, span.token),) for (span,) in parts[:1] for at in range(4)]
    for spans in [*fronts, parts[1]]:
        proxy.arm(-1)
        assert counted.acknowledge(Acknowledge(shard, spans)) == Fenced()
        assert proxy.commands == ["WITH"]
    proxy.arm(-1)
    assert counted.acknowledge(Acknowledge(shard, parts[2])) == Fenced()
    assert proxy.commands[0] == "WITH"
    assert proxy.commands[-1] == "COMMIT"
    assert counted.count(shard).ready == counted.count(shard).in_flight == 0


def test_claims_of_a_cut_bundle_read_its_data_once(
    counted: PostgresStore, proxy: PostgresProxy, shard: Shard
) -> None:
    bundle = BundleFactory(counted.now)(30, data=b"x" * 5000)
    counted.append(Append(shard, (bundle,), fresh=True))
    for number in range(3):
        proxy.arm(-1)
        (piece,) = counted.claim(Claim(shard, os.urandom(16), 10, MINUTE)).slices
        assert (piece.first, piece.bundle) == (10 * number, bundle)
        assert proxy.commands == (["WITH"] if number else ["WITH", "SELECT"])


@pytest.mark.parametrize(("shards", "size"), [(9, 5000), (1, 300_000)], ids=["many bundles", "a large one"])
def test_data_that_is_not_kept_is_read_again(
    counted: PostgresStore, proxy: PostgresProxy, shard: Shard, shards: int, size: int
) -> None:
    make = BundleFactory(counted.now)
    those = [msgspec.structs.replace(shard, number=number) for number in range(shards)]
    for each in those:
        counted.append(Append(each, (make(20, data=b"x" * size),)))
        counted.claim(Claim(each, os.urandom(16), 10, MINUTE))
    proxy.arm(-1)
    (piece,) = counted.claim(Claim(shard, os.urandom(16), 10, MINUTE)).slices
    assert len(piece.bundle.data) == size
    assert proxy.commands == ["WITH", "SELECT"]
