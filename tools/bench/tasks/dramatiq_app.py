"""Tasks of Dramatiq on Redis. It has no bulk send: each is a request."""

from __future__ import annotations

import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from .counted import KEEPS, RESULT_SECONDS, URL, ran

broker = RedisBroker(url=URL)
if KEEPS:
    broker.add_middleware(Results(backend=RedisBackend(url=URL), result_ttl=RESULT_SECONDS * 1_000))
dramatiq.set_broker(broker)
WORKER = [sys.executable, "-m", "dramatiq", "tools.bench.tasks.dramatiq_app", "--processes", "1"]
WORKER += ["--threads", "8"]


@dramatiq.actor(**({"store_results": True} if KEEPS else {}))  # type: ignore[untyped-decorator]
def empty() -> int | None:
    ran()
    return 1 if KEEPS else None  # else it warns of each


def send(count: int) -> None:
    for _ in range(count):
        empty.send()


send_each = send
