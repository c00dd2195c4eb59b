"""Apps that the processes of a pool import."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

from shardq.tasks import Tasks, current_task

app = Tasks()


@app.task(queue="sums")
def add(first: int, second: int) -> int:
    return first + second


@app.task(queue="sums")
async def wait_for_others(file: str, count: int) -> int:
    """Ends when so many of these run at the same time."""
    Path(file, current_task().id.replace(":", "_").replace("/", "_")).touch()
    while len(os.listdir(file)) < count:  # noqa: PTH208
        await asyncio.sleep(0.01)
    return os.getpid()


@app.task(queue="sums")
def die_once(file: str) -> int:
    """Kill the process at the first delivery."""
    if current_task().deliveries == 1:
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return current_task().deliveries


@app.task(queue="sums")
def hang_once() -> int:
    """Never end at the first delivery."""
    if current_task().deliveries == 1:
        threading.Event().wait()
    return current_task().deliveries
