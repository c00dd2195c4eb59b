"""The tombstones that a read of the wide rows crosses, as Cassandra counts them."""

from __future__ import annotations

from ..bench.cassandra_server import connect

__all__ = ["Tombstones"]

KEYSPACE, TABLE = "shardq", "entry"
QUERY = f"SELECT * FROM system_views.tombstones_per_read WHERE keyspace_name = '{KEYSPACE}' AND table_name = '{TABLE}'"
COLUMN = "p99th"


class Tombstones:
    """A session of the driver, for the server's own statistics."""

    def __init__(self) -> None:
        self._session = connect(KEYSPACE)

    def of_a_read(self) -> float | None:
        """The 99th percentile of the reads of the last minutes; None before the first."""
        answer = self._session.execute(QUERY)
        row = answer.one()
        return None if row is None else float(dict(zip(answer.column_names, row, strict=True))[COLUMN])

    def close(self) -> None:
        """End the session."""
        self._session.cluster.shutdown()
