"""A PostgreSQL under the recorder, whose data is cut and started again."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import psycopg

import shardq
from shardq.base.clock import SystemClock

from .checking import Offence, check_messages
from .marks import Ledger
from .recording import Recorder

sys.path.append(str(Path(__file__).parents[1] / "servers"))

from ports import kept_ports
from postgresql_cluster import ADDRESS, USER, Cluster, let_through, server_user

__all__ = ["PostgresqlStore"]

_LEASE_SECONDS = 31.0  # the server's clock is the machine's: leases have to end
_SMALL = {  # so that the load has checkpoints, uses segments of the log again, and writes pages early
    "shared_buffers": "1MB",
    "max_connections": "30",
    "min_wal_size": "2MB",
    "max_wal_size": "2MB",
    "bgwriter_delay": "10ms",
}
_CHECKED = {"fsync": "off", "shared_buffers": "16MB", "autovacuum": "off"}
# Pages with a wrong checksum fail when they are read; amcheck compares each index with its table.
_TABLES = (
    "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'shardq'::regnamespace AND relkind = 'r'"
)
_INDEXES = """
    SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
    WHERE c.relkind = 'i' AND a.amname = 'btree'
"""


class PostgresqlStore:
    """One server, with checksums of its pages; ``settings`` are its own beside those of the load."""

    name = "postgresql"
    window = 0
    names_last = True  # it does not sync the folder of a new table
    cut_beyond_the_load = False  # without its schema it has no queues

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = _SMALL | dict(settings or {})
        self._folder = Path()
        self._port = 0
        self.url = ""

    def start(self, recorder: Recorder) -> None:
        """Make and start the server in the recorded folder."""
        self._folder = recorder.folder.parent
        (self._port,) = kept_ports(self._folder, [ADDRESS], 1)
        self.url = f"postgresql://{USER}@{ADDRESS}:{self._port}/postgres"
        recorder.log.touch()
        if server_user():
            recorder.log.chmod(0o666)
        cluster = self._cluster(self._folder)
        with recorder.preloaded():
            cluster.initialize("--data-checksums", "--wal-segsize=1")
            cluster.start(self._settings)

    def stop(self) -> None:
        """End the server."""
        self._cluster(self._folder).stop()

    def check(self, image: Path, ledger: Ledger, at: int, ended_at: int, junk: bytes) -> Iterator[Offence]:  # noqa: ARG002
        """Start a server on an image; nothing comes when every promise was kept."""
        time.sleep(max(0.0, _LEASE_SECONDS - (SystemClock().now() - ended_at) / 1e6))
        cluster = self._cluster(image)
        self._prepare(cluster)
        try:
            cluster.start(_CHECKED)
            yield from check_messages(partial(shardq.connect, self.url), ledger, at)
            yield from _check_pages(self.url)
        except RuntimeError as error:
            yield Offence(f"unusable: {str(error)[-300:]}")
        finally:
            cluster.stop(signal.SIGQUIT)

    def _cluster(self, folder: Path) -> Cluster:
        return Cluster(folder, self._port, folder / "data" / "cluster")

    def _prepare(self, cluster: Cluster) -> None:
        """Make the folders, which are all older than the load, and give everything to the user of the server."""
        known = self._cluster(self._folder).data
        for folder, _, _ in os.walk(known):
            (cluster.data / Path(folder).relative_to(known)).mkdir(parents=True, exist_ok=True)
        cluster.data.chmod(0o700)
        if user := server_user():
            let_through(cluster.data.parent)
            for path in (cluster.data, *cluster.data.rglob("*")):
                shutil.chown(path, user)


def _check_pages(url: str) -> Iterator[Offence]:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for (table,) in connection.execute(_TABLES).fetchall():
                connection.execute(f"SELECT count(*) FROM {table} AS t WHERE t IS NULL")
            connection.execute("CREATE EXTENSION amcheck")
            connection.execute(_INDEXES)
    except psycopg.Error as error:
        yield Offence(f"corrupt: {error}")
