"""The contracts that rest on conditional writes hold with the older variant of Paxos too; all others run with v2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from local_server import local_server

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from test_cassandra import CassandraHarness

from shardq.testing.conformance import ConcurrencyContract, FencingContract

pytestmark = [pytest.mark.cassandra, pytest.mark.one_process]


@pytest.fixture(scope="module")
def harness() -> Iterator[CassandraHarness]:
    with local_server("cassandra", "--short-lived", "--paxos", "v1", "--heap", "512m") as (url, _):
        harness = CassandraHarness(url)
        yield harness
        harness.close()


class TestPaxosV1(ConcurrencyContract, FencingContract):
    """Who gets ahead of whom."""


def test_the_server_uses_the_older_variant(harness: CassandraHarness) -> None:
    variant = "SELECT value FROM system_views.settings WHERE name = 'paxos_variant'"
    assert [row.value for row in harness.session.execute(variant)] == ["v1"]
