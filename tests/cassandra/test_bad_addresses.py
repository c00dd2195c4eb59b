"""What is wrong with an address, a server or a schema is told with its remedy, and never with the password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import shardq
from shardq.base.shard import Shard
from shardq.errors import InvalidSetting, MessageTooLarge, SchemaMismatch, StoreUnavailable
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.guarantees import require_overlap
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from shardq.storage.requests import Append, ShardCounts
from shardq.testing import BundleFactory

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("test_bad_addresses")]  # it has a server of its own


def test_a_url_says_where_and_how() -> None:
    address = parse(
        "cassandra://me:se%40cret@one,two:9142/orders?local_dc=dc1&consistency=quorum&serial_consistency=serial"
        "&replication=dc1:3,dc2:2&timeout=2.5&ssl=true&ca=/etc/ca.pem"
    )
    assert address == Address(
        hosts=("one", "two"),
        keyspace="orders",
        port=9142,
        user="me",
        password="se@cret",
        local_dc="dc1",
        consistency="QUORUM",
        serial_consistency="SERIAL",
        replication=(("dc1", 3), ("dc2", 2)),
        timeout=2.5,
        ssl=True,
        ca="/etc/ca.pem",
    )
    assert "se@cret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "rest",
    [
        "/ks",
        "one",
        "one/",
        "one/1ks",
        'one/k"; DROP',
        "one:1,two:2/ks",
        "one:x/ks",
        "one:99999/ks",
        "one/ks?consistency=MANY",
        "one/ks?consistency=ONE",
        "one/ks?consistency=any",
        "one/ks?consistency=TWO",
        "one/ks?consistency=LOCAL_ONE",
        "one/ks?replication=dc1:3,dc2:3",
        "one/ks?replication=dc1:3,dc2:3&local_dc=dc1&serial_consistency=SERIAL",
        "one/ks?replication=dc1:3,dc2:3&local_dc=dc1&consistency=QUORUM",
        "one/ks?serial_consistency=ONE",
        "one/ks?replication=dc1",
        "one/ks?replication=dc1:0",
        "one/ks?replication=dc1:\u00b2",
        "one/ks?replication=d'c:1",
        "one/ks?local_dc=d'c",
        "one/ks?timeout=0",
        "one/ks?timeout=soon",
        "one/ks?ssl=maybe",
        "one/ks?unknown=1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(rest: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse(f"cassandra://me:secret@{rest}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("places", "wrong"),
    [("", "names no host"), ("one,", "names no host"), (":9042", "names no host"),
     *((f"one:{port}", "not a number from 1 to 65535") for port in ("x", "0", "-1", "65536", "\u00b2", "9042x")),
     ("one:1,two:2", "several ports")],
)  # fmt: skip
def test_hosts_and_ports_are_told_apart_when_one_of_them_is_wrong(places: str, wrong: str) -> None:
    with pytest.raises(InvalidSetting, match=wrong):
        parse(f"cassandra://{places}/ks")


@pytest.mark.parametrize(
    "url",
    [
        "cassandra://me:12/secret@one/ks",
        "cassandra://me:12#secret@one/ks",
        "cassandra://me:secret?@one/ks",
        "cassandra://me:secret[1@one/ks",
        "cassandra://me:secret/ks",
        "cassandra:/me:secret@one/ks",
    ],
)
def test_a_password_that_is_not_quoted_is_told_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        shardq.connect(url)
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("changes", [{"hosts": ("no.such.host.invalid",)}, {"local_dc": "elsewhere"}])
def test_hosts_that_lead_nowhere_are_unavailable(cassandra_url: str, changes: dict[str, Any]) -> None:
    store = CassandraStore(msgspec.structs.replace(parse(cassandra_url), **changes))
    with pytest.raises(StoreUnavailable, match="check"):
        store.load_queue("q")
    store.close()


def test_a_bundle_above_the_limit_of_the_server_is_too_large(store: CassandraStore, shard: Shard) -> None:
    bundle = msgspec.structs.replace(BundleFactory(store.now)(1), data=bytes(17 << 20))
    with pytest.raises(MessageTooLarge, match="send fewer messages at once"):
        store.append(Append(shard, (bundle,)))
    assert store.count(shard) == ShardCounts()


def test_more_copies_than_there_are_nodes_are_unavailable_until_they_are_there(cassandra_url: str) -> None:
    address = parse(f"{cassandra_url}?replication=datacenter1:3&consistency=LOCAL_QUORUM")
    store = CassandraStore(msgspec.structs.replace(address, keyspace="three_copies"))
    with pytest.raises(StoreUnavailable, match="1 of 2 replicas") as caught:
        store.create_schema()
    assert caught.value.retryable
    assert [finding.ok for finding in store.diagnose()][-1] is False
    with store.session.unprepared() as driver:
        driver.execute("DROP KEYSPACE three_copies")
    store.close()


def test_a_schema_of_a_later_version_is_not_used(cassandra_url: str) -> None:
    store = CassandraStore(msgspec.structs.replace(parse(cassandra_url), keyspace="of_later"))
    store.create_schema()
    with store.session.unprepared() as driver:
        driver.execute("UPDATE of_later.schema_version SET version = 99 WHERE part = 'shardq' IF EXISTS")
        for use in (store.create_schema, lambda: store.load_queue("q")):
            with pytest.raises(SchemaMismatch, match="upgrade shardq"):
                use()
        driver.execute("DROP KEYSPACE of_later")
    store.close()


def test_a_server_that_is_not_there_is_unavailable() -> None:
    store = CassandraStore(parse("cassandra://me:secret@127.0.0.1:1/ks?timeout=2"))
    with pytest.raises(StoreUnavailable, match="check hosts, port and network") as caught:
        store.load_queue("q")
    assert caught.value.retryable
    assert "secret" not in str(caught.value)
    assert [finding.ok for finding in store.diagnose()] == [False]


def test_a_keyspace_that_is_not_there_has_no_schema(cassandra_url: str) -> None:
    store = CassandraStore(msgspec.structs.replace(parse(cassandra_url), keyspace="nowhere"))
    with pytest.raises(SchemaMismatch, match="shardq create"):
        store.load_queue("q")
    store.close()


def test_a_consistency_that_cannot_be_met_is_told(cassandra_url: str, store: CassandraStore) -> None:
    store.create_schema()
    address = msgspec.structs.replace(parse(cassandra_url), consistency="THREE")
    demanding = CassandraStore(address)
    with pytest.raises(StoreUnavailable, match="of 3 replicas"):
        demanding.load_queue("q")
    demanding.close()


@pytest.mark.parametrize(
    ("replication", "rest", "fits"),
    [
        ({"dc1": "3"}, "", True),
        ({"dc1": "3"}, "?consistency=QUORUM", True),
        ({"dc1": "3"}, "?serial_consistency=SERIAL", True),
        ({"replication_factor": "3"}, "?serial_consistency=SERIAL", True),
        ({"dc1": "3", "dc2": "0"}, "", True),
        ({"dc1": "3", "dc2": "3/1"}, "?consistency=QUORUM&serial_consistency=SERIAL", True),
        ({"dc1": "3", "dc2": "3"}, "?consistency=EACH_QUORUM&serial_consistency=SERIAL", True),
        ({"dc1": "3", "dc2": "3"}, "?local_dc=dc2", True),
        ({"dc1": "3", "dc2": "3"}, "", False),
        ({"dc1": "3", "dc2": "3"}, "?local_dc=dc1&serial_consistency=SERIAL", False),
        ({"dc1": "3", "dc2": "3"}, "?local_dc=dc1&consistency=QUORUM", False),
    ],
)
def test_a_consistency_that_does_not_overlap_between_data_centres_is_refused_with_the_remedy(
    replication: dict[str, str], rest: str, fits: bool
) -> None:
    class Cluster:
        address = parse(f"cassandra://one/ks{rest}")

        def read(self, query: str, values: object) -> list[object]:
            return [({"class": "a strategy", **replication},)]

    cluster: Any = Cluster()
    if fits:
        require_overlap(cluster)
        return
    with pytest.raises(InvalidSetting, match="give consistency=QUORUM&serial_consistency=SERIAL"):
        require_overlap(cluster)


def test_a_consistency_that_is_too_little_for_the_keyspace_is_refused_at_the_first_use(
    cassandra_url: str, store: CassandraStore
) -> None:
    address = msgspec.structs.replace(parse(cassandra_url), keyspace="two_centres")
    store = CassandraStore(address)
    store.create_schema()
    hasty = CassandraStore(msgspec.structs.replace(address, serial_consistency="SERIAL"))
    hasty.session.read = _with_two_centres(hasty.session.read)  # type: ignore[method-assign]
    for use in (hasty.create_schema, lambda: hasty.load_queue("q")):
        with pytest.raises(InvalidSetting, match="several data centres"):
            use()
    with store.session.unprepared() as driver:
        driver.execute("DROP KEYSPACE two_centres")
    hasty.close()
    store.close()


def _with_two_centres(read: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def answered(query: str, values: Any, **options: Any) -> list[Any]:
        if "replication" in query:
            return [({"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "3"},)]
        return read(query, values, **options)

    return answered
