"""A client of Cassandra that dies between any two of its requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.storage.cassandra.groups import changing as group_changing
from tests.kills.killed_bodies import KilledBodies
from tests.kills.killed_clients import KilledClients
from tests.kills.killed_moves import KilledMoves
from tests.kills.killed_queues import KilledQueues
from tests.kills.killed_schedules import KilledSchedules
from tests.kills.killed_topics import KilledTopics
from tests.kills.killed_workflows import KilledWorkflows
from tests.kills.killers import CassandraKiller

pytestmark = [
    pytest.mark.server,
    # The threads of a client die with it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="session")
def killer(cassandra_url: str) -> Iterator[CassandraKiller]:
    killer = CassandraKiller(cassandra_url)
    yield killer
    killer.close()


@pytest.fixture(autouse=True)
def narrow_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short groups are longer than their windows, so that something is behind these."""
    monkeypatch.setattr(group_changing, "WINDOW", 1)


class TestCassandraKills(
    KilledClients, KilledQueues, KilledMoves, KilledTopics, KilledSchedules, KilledBodies, KilledWorkflows
):
    """Every operation, on Cassandra."""
