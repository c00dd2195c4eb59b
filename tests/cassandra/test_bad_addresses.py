"""What is wrong with an address, a server or a schema is told with its remedy, and never with the password."""

from __future__ import annotations

import msgspec
import pytest

from shardq.errors import InvalidSetting, SchemaMismatch, StoreUnavailable
from shardq.storage.cassandra.address import Address
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse

pytestmark = pytest.mark.cassandra


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
        "one/ks?serial_consistency=ONE",
        "one/ks?replication=dc1",
        "one/ks?replication=dc1:0",
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
