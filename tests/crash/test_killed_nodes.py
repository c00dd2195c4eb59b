"""Three nodes of Cassandra, one of which dies and one of which hangs while producers and consumers are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from ledger import Ledger
from local_server import TOOLS, local_server
from stage import Stage, drain

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

import shardq
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from shardq.storage.requests import QueueRecord

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NODES = ("--nodes", "3", "--heap", "512m")
OPTIONS = "consistency=LOCAL_QUORUM&replication=datacenter1:3&timeout=4"
LEASE = 15.0
SECONDS = 6.0  # of each state of the cluster, and more where nothing was done in it
PATIENCE = 45.0


class Nodes:
    """The nodes of a cluster on this computer."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = f"{url}?{OPTIONS}", folder

    def signal(self, node: int, what: signal.Signals) -> None:
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


def go_on(stage: Stage) -> None:
    """Let a state of the cluster last for a while, and until something was sent and acked in it."""
    began = time.monotonic_ns()
    time.sleep(SECONDS)
    while idle := {"sent", "acked"} - happened(stage, since=began):
        assert time.monotonic_ns() - began < PATIENCE * 1e9, f"since then nothing was {idle}"
        time.sleep(0.5)
    assert [process.poll() for _, process in stage.actors] == [None] * len(stage.actors), "an actor gave up"


def happened(stage: Stage, since: int) -> set[str]:
    times = Ledger(stage.logs).times
    return {
        event for event, bodies in times.items() if any(max(moments) > since for moments in bodies.values())
    }


def test_what_was_acknowledged_outlives_a_killed_and_a_paused_node(nodes: Nodes, tmp_path: Path) -> None:
    with shardq.connect(nodes.url, retry_seconds=60) as client:
        queue = client.create_queue(
            "crash",
            shards=4,
            time_shards=4,
            time_shard_seconds=5,
            visibility_timeout=LEASE,
            max_deliveries=None,
        )
        stage = Stage(tmp_path, nodes.url, 0)
        try:
            # Given producers and consumers at work
            for role in ("trickle", "trickle", "work", "work"):
                stage.start(role)
            go_on(stage)
            # When a node is killed, which the clients' control connections are on, and comes back
            nodes.signal(1, signal.SIGKILL)
            go_on(stage)
            nodes.start()
            go_on(stage)
            # And another one hangs for a while
            nodes.signal(2, signal.SIGSTOP)
            go_on(stage)
            nodes.signal(2, signal.SIGCONT)
            go_on(stage)
            stage.end("trickle")
            drain(queue, 150)
        finally:
            stage.end("trickle")
            stage.end("work")
        # Then every promise held
        assert not Ledger(stage.logs).problems()
