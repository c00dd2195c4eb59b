"""An app whose task kills the process, for pools."""

from __future__ import annotations

import os
import time

from shardq.tasks import Tasks

tasks = Tasks()


@tasks.task
def work(name: str) -> str:
    if name == "poison":
        os._exit(9)  # as by the OOM killer
    time.sleep(0.01)
    return name
