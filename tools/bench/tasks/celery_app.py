"""Tasks of Celery on Redis. It has no bulk send: each is a request."""

from __future__ import annotations

import sys

from celery import Celery, chord

from .counted import KEEPS, RESULT_SECONDS, URL, ran

app = Celery("tasks", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,  # as shardq does: what a worker that dies has begun is run again
    worker_prefetch_multiplier=64,
    result_expires=RESULT_SECONDS,
    broker_connection_retry_on_startup=True,
)
WORKER = [sys.executable, "-m", "celery", "-A", "tools.bench.tasks.celery_app", "worker"]
WORKER += ["--pool", "threads", "--concurrency", "8", "--without-gossip", "--without-mingle", "-l", "ERROR"]


@app.task(ignore_result=not KEEPS)  # type: ignore[untyped-decorator]
def empty() -> None:
    ran()


@app.task  # type: ignore[untyped-decorator]
def number(value: int) -> int:
    return value


@app.task  # type: ignore[untyped-decorator]
def total(values: list[int]) -> int:
    return sum(values)


def send(count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            empty.apply_async(producer=producer)


send_each = send


def run_chord(count: int) -> int:
    return int(chord(number.s(value) for value in range(count))(total.s()).get(timeout=300))
