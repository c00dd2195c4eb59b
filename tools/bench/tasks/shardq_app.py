"""Tasks of shardq, sent in bundles."""

from __future__ import annotations

import sys

from shardq.tasks import Tasks, chord

from .counted import KEEPS, RESULT_SECONDS, URL, ran

app = Tasks(URL or None)
WORKER = [sys.executable, "-c", "from shardq.cli.main import main; main()", "--url", URL, "work"]
WORKER += ["--tasks", "tools.bench.tasks.shardq_app:app", "--threads", "8"]


@app.task(keep_result=RESULT_SECONDS if KEEPS else 0)
def empty() -> None:
    ran()


@app.task
def number(value: int) -> int:
    return value


@app.task
def total(values: list[int]) -> int:
    return sum(values)


def send(count: int) -> None:
    empty.send_many(empty.signature() for _ in range(count))


def send_each(count: int) -> None:
    for _ in range(count):
        empty.send()


def run_chord(count: int) -> int:
    return int(chord((number.signature(value) for value in range(count)), total.then()).send().get())
