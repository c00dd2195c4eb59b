"""A client of Cassandra that dies between any two of its requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kills.killed_clients import KilledClients
from tests.kills.killed_moves import KilledMoves
from tests.kills.killed_queues import KilledQueues
from tests.kills.killers import CassandraKiller

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
