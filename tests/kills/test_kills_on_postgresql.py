"""A client of PostgreSQL that dies between any two of its requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kills.killed_bodies import KilledBodies
from tests.kills.killed_clients import KilledClients
from tests.kills.killed_moves import KilledMoves
from tests.kills.killed_queues import KilledQueues
from tests.kills.killed_schedules import KilledSchedules
from tests.kills.killed_topics import KilledTopics
from tests.kills.killed_transactions import KilledTransactions
from tests.kills.killed_workflows import KilledWorkflows
from tests.kills.killers import PostgresKiller

pytestmark = [
    pytest.mark.server,
    # The threads of a client die with it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="session")
def killer(postgresql_url: str) -> Iterator[PostgresKiller]:
    killer = PostgresKiller(postgresql_url)
    yield killer
    killer.close()


class TestPostgresKills(
    KilledClients,
    KilledQueues,
    KilledMoves,
    KilledTopics,
    KilledSchedules,
    KilledBodies,
    KilledTransactions,
    KilledWorkflows,
):
    """Every operation, on PostgreSQL."""
