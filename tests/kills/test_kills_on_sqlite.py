"""A client of SQLite that dies between any two of its requests."""

from __future__ import annotations

import pytest
from killed_clients import KilledClients
from killed_moves import KilledMoves
from killed_queues import KilledQueues
from killers import SqliteKiller


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> SqliteKiller:
    return SqliteKiller(tmp_path_factory.mktemp("kills"))


class TestSqliteKills(KilledClients, KilledQueues, KilledMoves):
    """Every operation, on SQLite."""
