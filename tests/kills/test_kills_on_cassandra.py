"""A client of Cassandra that dies between any two of its requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from killed_clients import KilledClients
from killed_moves import KilledMoves
from killed_queues import KilledQueues
from killers import CassandraKiller

pytestmark = [
    pytest.mark.cassandra,
    # The threads of a client die with it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def killer(cassandra_url: str) -> Iterator[CassandraKiller]:
    killer = CassandraKiller(cassandra_url)
    yield killer
    killer.close()


class TestCassandraKills(KilledClients, KilledQueues, KilledMoves):
    """Every operation, on Cassandra."""
