"""A mongod under the recorder: a replica set of one, whose folder is cut and started again."""

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

sys.path.append(str(Path(__file__).parents[1] / "servers"))

from mongodb_member import ADDRESS, SET, Member
from mongodb_setup import initiate
from ports import kept_ports
from server_process import ServerProcess

__all__ = ["MongodbStore"]

_LEASE_SECONDS = 31.0  # the server's clock is the machine's: leases have to end


class MongodbStore:
    """One server, with shardq's own write concern."""

    name = "mongodb"
    window = 0
    names_last = False
    cut_beyond_the_load = False  # a replica set that was never initiated has no queues

    def __init__(self) -> None:
        self._folder = Path()
        self._port = 0
        self.url = ""

    def start(self, recorder: Recorder) -> None:
        """Start the server on the recorded folder."""
        self._folder = recorder.folder.parent
        (self._port,) = kept_ports(self._folder, [ADDRESS], 1)
        self.url = f"mongodb://{ADDRESS}:{self._port}/shardq?replicaSet={SET}"
        member = self._member(self._folder)
        with recorder.preloaded():
            member.start()
        initiate([member])

    def stop(self) -> None:
        """End the server."""
        ServerProcess(self._folder).stop()

    def check(self, image: Path, ledger: Ledger, at: int, ended_at: int, junk: bytes) -> Iterator[Offence]:  # noqa: ARG002
        """Start a server on an image; nothing comes when every promise was kept."""
        time.sleep(max(0.0, _LEASE_SECONDS - (SystemClock().now() - ended_at) / 1e6))
        member = self._member(image)
        try:
            member.start()
            initiate([member])
            yield from check_messages(partial(shardq.connect, self.url), ledger, at)
        except RuntimeError as error:
            yield Offence(f"unusable: {str(error)[:300]}")
        finally:
            ServerProcess(image).stop(signal.SIGKILL)

    def _member(self, folder: Path) -> Member:
        return Member(folder, self._port, in_set=True, cache="0.25")
