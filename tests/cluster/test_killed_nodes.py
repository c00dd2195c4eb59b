"""Three nodes of Cassandra, one of which dies and one of which hangs while producers and consumers are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.cluster.turmoil import endure
from tests.local_server import TOOLS, local_server

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from shardq.storage.requests import QueueRecord

pytestmark = pytest.mark.timeout(600)

NODES = ("--nodes", "3", "--heap", "512m")
OPTIONS = "consistency=LOCAL_QUORUM&replication=datacenter1:3&timeout=4"


class Nodes:
    """The nodes of a cluster on this computer."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = f"{url}?{OPTIONS}", folder

    def kill(self) -> None:
        """The one that the clients' control connections are on."""
        self._signal(1, signal.SIGKILL)

    def pause(self) -> None:
        self._signal(2, signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(2, signal.SIGCONT)

    def _signal(self, node: int, what: signal.Signals) -> None:
        os.kill(int((self._folder / f"127.0.0.{node}" / "pid").read_text()), what)

    def start(self) -> None:
        """Start those that do not run; returns when they answer."""
        subprocess.run(
            [sys.executable, str(TOOLS / "cassandra.py"), "start", *NODES, "--folder", str(self._folder)],
            check=True,
        )


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with local_server("cassandra", *NODES) as (url, folder):
        yield Nodes(url, folder)


def test_many_clients_make_the_schema_at_once_on_nodes_that_do_not_know_of_each_other_yet(
    nodes: Nodes,
) -> None:
    def make(node: int) -> bool:
        address = msgspec.structs.replace(
            parse(nodes.url), keyspace="made_at_once", hosts=(f"127.0.0.{node}",)
        )
        store = CassandraStore(address)
        try:
            return store.create_queue(QueueRecord(f"q{node}{threading.get_ident()}", b"", 1))
        finally:
            store.close()

    with ThreadPoolExecutor(6) as clients:
        assert list(clients.map(make, (1, 2, 3, 1, 2, 3))) == [True] * 6


def test_what_was_acknowledged_outlives_a_killed_and_a_paused_node(nodes: Nodes, tmp_path: Path) -> None:
    endure(nodes, tmp_path, lease=15.0, seconds=6.0)
