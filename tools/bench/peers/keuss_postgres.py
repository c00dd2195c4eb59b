"""Keuss on PostgreSQL, with the pool of its driver as it is: ten connections."""

from __future__ import annotations

import os
from typing import Any

import psycopg

from .keuss_queue import KeussQueue


class KeussPostgres(KeussQueue):
    name = "Keuss 2.0.6, postgres"
    durability = "fsync"
    sends = "a commit with its fsync for each, the body as base64 in JSON; 32 in flight on ten connections"
    receives = "an update reserves (SKIP LOCKED), a delete commits, for each message; 32 in flight on ten connections"
    share = 0.05
    backend = "postgres"
    wins = "a send is one insert, which notifies no other process"

    def options(self) -> dict[str, Any]:
        return {"postgres": {"connectionString": os.environ["SHARDQ_TEST_POSTGRESQL_URL"]}}

    def clear(self) -> None:
        with psycopg.connect(os.environ["SHARDQ_TEST_POSTGRESQL_URL"], autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS _k_tbl_bench")
