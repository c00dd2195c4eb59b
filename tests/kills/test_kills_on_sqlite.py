"""A client of SQLite that dies between any two of its requests."""

from __future__ import annotations

import pytest

from tests.kills.killed_bodies import KilledBodies
from tests.kills.killed_clients import KilledClients
from tests.kills.killed_moves import KilledMoves
from tests.kills.killed_queues import KilledQueues
from tests.kills.killed_schedules import KilledSchedules
from tests.kills.killed_topics import KilledTopics
from tests.kills.killed_transactions import KilledTransactions
from tests.kills.killed_workflows import KilledWorkflows
from tests.kills.killers import SqliteKiller


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> SqliteKiller:
    return SqliteKiller(tmp_path_factory.mktemp("kills"))


@pytest.fixture(scope="module")
def killer_of_application(tmp_path_factory: pytest.TempPathFactory) -> SqliteKiller:
    return SqliteKiller(tmp_path_factory.mktemp("kills"), of_application=True)


@pytest.mark.long
class TestKillsInAnApplicationsDatabase(KilledClients, KilledTransactions):
    """With a rollback journal."""

    @pytest.fixture
    def killer(self, killer_of_application: SqliteKiller) -> SqliteKiller:
        return killer_of_application


class TestSqliteKills(
    KilledClients,
    KilledQueues,
    KilledMoves,
    KilledTopics,
    KilledSchedules,
    KilledBodies,
    KilledTransactions,
    KilledWorkflows,
):
    """Every operation, on SQLite."""
