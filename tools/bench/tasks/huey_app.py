"""Tasks of huey on Redis. It has no bulk send, and takes a task out before it runs: at most once."""

from __future__ import annotations

import sys

from huey import RedisHuey

from .counted import KEEPS, URL, ran

huey = RedisHuey("tasks", url=URL, results=KEEPS)
WORKER = [sys.executable, "-m", "huey.bin.huey_consumer", "tools.bench.tasks.huey_app.huey"]
WORKER += ["--workers", "8", "--worker-type", "thread", "--delay", "0.01", "--quiet"]


@huey.task()  # type: ignore[untyped-decorator]
def empty() -> int:
    ran()
    return 1


def send(count: int) -> None:
    for _ in range(count):
        empty()


send_each = send
