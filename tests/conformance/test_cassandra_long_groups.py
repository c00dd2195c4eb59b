"""The order of groups that are longer than their windows: all but one waiting slice of each is behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.storage.cassandra.groups import changing
from shardq.testing.conformance import GroupContract, GroupLeaseContract, GroupStayContract, ModelContract
from tests.conformance.test_cassandra import CassandraHarness

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.fixture(scope="session")
def harness(cassandra_url: str) -> Iterator[CassandraHarness]:
    harness = CassandraHarness(cassandra_url)
    yield harness
    harness.close()


@pytest.fixture(autouse=True)
def narrow_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "WINDOW", 1)


class TestLongGroups(GroupContract, GroupStayContract, GroupLeaseContract, ModelContract):
    """Every contract of groups."""
