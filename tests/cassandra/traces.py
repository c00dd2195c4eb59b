"""What the server tells of the requests of a call, by its traces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cassandra.query import BoundStatement

from shardq.storage.cassandra.store import CassandraStore

__all__ = ["tombstones_of"]

_TOMBSTONES = re.compile(r"and (\d+) tombstone")


def tombstones_of(store: CassandraStore, do: Callable[[], Any], words: str = "") -> int:
    """Return how many tombstones the requests of a call read, or those of its queries that have these words."""
    driver = store.session.connected.get().driver
    futures: list[Any] = []
    execute_async = driver.execute_async

    def execute_traced(
        statement: Any, parameters: Any = None, trace: bool = True, *rest: Any, **options: Any
    ) -> Any:
        query = statement.prepared_statement.query_string if isinstance(statement, BoundStatement) else ""
        future = execute_async(statement, parameters, True, *rest, **options)
        if words in query:
            futures.append(future)
        return future

    driver.execute_async = execute_traced
    try:
        do()
    finally:
        del driver.execute_async
    events = [event.description for future in futures for event in future.get_query_trace(max_wait=10).events]
    assert any(_TOMBSTONES.search(event) for event in events), "the trace tells nothing of tombstones"
    return sum(int(match[1]) for event in events if (match := _TOMBSTONES.search(event)))
