"""A Cassandra node under the recorder, whose folder is cut and started again."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import shardq
from shardq.base.clock import SystemClock

from .checking import Offence, check_messages
from .marks import Ledger
from .recording import Recorder

sys.path.append(str(Path(__file__).parents[1] / "servers"))  # last, as the driver too is called cassandra

from cassandra_node import VERSION, Node
from maven_jars import jars
from ports import kept_ports
from server_process import ServerProcess

__all__ = ["CassandraStore"]

_ADDRESS = "127.0.0.1"
_LEASE_SECONDS = 31.0  # the node's clock is the machine's: leases have to end
_SYNCS: dict[str, dict[str, object]] = {
    "batch": {"commitlog_sync": "batch", "commitlog_sync_period": None},
    "group": {
        "commitlog_sync": "group",
        "commitlog_sync_period": None,
        "commitlog_sync_group_window": "15ms",
    },
    "periodic": {},  # every 10 s, as shipped
}
_SMALL = {  # so that the load fills several segments of the commit log
    "commitlog_segment_size": "2MiB",
    "max_mutation_size": "1MiB",
    "commitlog_total_space": "16MiB",
    "auto_snapshot": False,
}
_FOLDERS = ("commitlog", "hints", "saved_caches", "cdc_raw")


class CassandraStore:
    """One node. ``sync`` is its `commitlog_sync`: batch, group or periodic."""

    name = "cassandra"
    names_last = True  # it does not sync the folder of its commit log
    cut_beyond_the_load = False  # a node without its schema has no queues

    def __init__(self, sync: str) -> None:
        self._sync = sync
        # Every 10 s; a node whose disk is late holds writes back after 15 s (periodic_commitlog_sync_lag_block).
        self.window = 15_000_000 if sync == "periodic" else 0
        self._folder = Path()
        self._ports = [0, 0]
        self.url = ""

    def start(self, recorder: Recorder) -> None:
        """Start the node on the recorded folder."""
        self._folder = recorder.folder.parent
        self._ports = kept_ports(self._folder, [_ADDRESS], 2)
        self.url = f"cassandra://{_ADDRESS}:{self._ports[0]}/shardq"
        with recorder.preloaded():
            # Java looks fsync up in a libc that it opens by name.
            archive = f"-XX:ArchiveClassesAtExit={self._classes}"
            self._start(self._folder, f"-Djna.library.path={recorder.as_libc}", archive)

    def stop(self) -> None:
        """End the node."""
        ServerProcess(self._folder).stop(patience=120)

    def check(self, image: Path, ledger: Ledger, at: int, ended_at: int, junk: bytes) -> Iterator[Offence]:  # noqa: ARG002
        """Start a node on an image; nothing comes when every promise was kept."""
        time.sleep(max(0.0, _LEASE_SECONDS - (SystemClock().now() - ended_at) / 1e6))
        try:
            archive = [f"-XX:SharedArchiveFile={self._classes}"] if self._classes.exists() else []
            self._start(image, "-Dcassandra.test.skip_sync=true", *archive)
            connect = partial(shardq.connect, self.url)
            yield from check_messages(connect, ledger, at, moves_at_once=False)
        except RuntimeError as error:
            yield Offence(f"unusable: {str(error)[:1000]}")
        finally:
            ServerProcess(image).stop(signal.SIGKILL)

    @property
    def _classes(self) -> Path:
        """The classes that were loaded, as half the time of a start goes into loading them."""
        return self._folder / "classes.jsa"

    def _start(self, folder: Path, *java: str) -> None:
        data = folder / "data"
        folders = {f"{name}_directory": str(data / name) for name in _FOLDERS}
        node = Node(
            folder,
            _ADDRESS,
            [_ADDRESS],
            port=self._ports[0],
            storage_port=self._ports[1],
            heap="256m",
            short_lived=True,
            settings={
                **_SMALL,
                **_SYNCS[self._sync],
                **folders,
                "data_file_directories": [str(data / "data")],
            },
            java=("-Xss512k", "-XX:-UsePerfData", *java),
        )
        node.start(jars(f"org.apache.cassandra:cassandra-all:{VERSION}"))
