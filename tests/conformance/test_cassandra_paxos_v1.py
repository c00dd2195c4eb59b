"""The contracts that rest on conditional writes hold with the older variant of Paxos too; all others run with v2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.testing.conformance import ConcurrencyContract, FencingContract, GroupContract, GroupLeaseContract
from tests.conformance.test_cassandra import CassandraHarness

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.fixture(scope="session")
def harness(narrow_cassandra_url: str) -> Iterator[CassandraHarness]:
    harness = CassandraHarness(narrow_cassandra_url)
    yield harness
    harness.close()


class TestPaxosV1(ConcurrencyContract, FencingContract, GroupContract, GroupLeaseContract):
    """Who gets ahead of whom."""


def test_the_server_uses_the_older_variant(harness: CassandraHarness) -> None:
    variant = "SELECT value FROM system_views.settings WHERE name = 'paxos_variant'"
    assert [row.value for row in harness.session.execute(variant)] == ["v1"]
