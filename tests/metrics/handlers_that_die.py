"""What the processes of a pool import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import shardq
from shardq import Message
from shardq.errors import StoreUnavailable
from shardq.pipelines import Pipeline
from shardq.worker.consuming import WorkerLoop
from shardq.worker.process import WorkerPlan


def die_at_the_end(message: Message) -> None:
    """Work messages; kill the process at the one that says so, once its reports have come."""
    if message.body == b"die" and message.deliveries == 1:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)


pipeline = Pipeline("cleaning").link("raw", "clean", lambda message: message.body).output("clean")


class UnreachablePlan(WorkerPlan, frozen=True, kw_only=True):
    """A plan whose store is unreachable for three processes."""

    marker: str

    def worker(self, client: shardq.Client) -> WorkerLoop:
        with Path(self.marker).open("ab") as attempts:
            attempts.write(b".")
        if Path(self.marker).stat().st_size <= 3:
            raise StoreUnavailable("the store is away")
        return super().worker(client)
