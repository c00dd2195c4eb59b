"""procrastinate, the task queue on PostgreSQL for Python: a job for each message, and its worker to receive them.

The worker's connections stay open between the runs that are measured, as those of the other queues do.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from ..peer import JOINED, SILENCE, PeerMissing

try:
    from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
except ImportError as error:
    raise PeerMissing("procrastinate is not installed") from error

BATCH = 1_000
CONCURRENCY = 16
SCHEMA, TASK = "bench_procrastinate", "bench"


class ProcrastinateQueue:
    name = "procrastinate"
    durability = "fsync"
    sends = "a commit with its fsync, the body as base64 in JSON; batch_defer of 1,000 in bulk, defer singly"
    receives = (
        "its worker: a statement fetches a job (SKIP LOCKED), one deletes it; at most 16 jobs at a time, on its "
        "pool of four connections"
    )
    share = 0.02
    wakes = "LISTEN by its worker"
    threads = JOINED
    takes_one = True
    wins = ""

    def open(self, folder: Path) -> None:
        self.place = os.environ["SHARDQ_TEST_POSTGRESQL_URL"]
        _execute(self.place, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}")
        self.join(self.place)
        self._app.schema_manager.apply_schema()

    def join(self, place: str) -> None:
        self._url = place
        self._app = App(connector=SyncPsycopgConnector(**_connecting(place), min_size=1))
        self._app.open()
        self._jobs = self._app.configure_task(TASK)
        self._worker: _Worker | None = None

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), BATCH):
            self._jobs.batch_defer(*({"body": _text(body)} for body in bodies[start : start + BATCH]))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._jobs.defer(body=_text(body))

    def receive(self, count: int, batch: int) -> int:
        return sum(map(len, self._working().drain(min(batch, CONCURRENCY))))

    def receiving(self) -> Iterator[Sequence[bytes]]:
        return self._working().wait()

    def leave(self) -> None:
        if self._worker:
            self._worker.close()
        self._app.close()

    def close(self) -> None:
        self.leave()
        _execute(self.place, f"DROP SCHEMA {SCHEMA} CASCADE")

    def _working(self) -> _Worker:
        """Return the worker, which is started when it is first needed."""
        if self._worker is None:
            self._worker = _Worker(self._url)
        return self._worker


class _Worker:
    """A worker whose event loop runs only while one of the methods waits."""

    def __init__(self, place: str) -> None:
        self._runner = asyncio.Runner()
        self._app = App(connector=PsycopgConnector(**_connecting(place)))
        self._app.task(name=TASK)(self._take)
        self._bodies: asyncio.Queue[bytes] = asyncio.Queue()
        self._runner.run(self._app.connector.open_async())

    def drain(self, concurrency: int) -> list[bytes]:
        """Run the worker until no job is left, and return the bodies."""
        self._runner.run(self._work(wait=False, concurrency=concurrency))
        return [self._bodies.get_nowait() for _ in range(self._bodies.qsize())]

    def wait(self) -> Iterator[Sequence[bytes]]:
        """Yield one body at a time, nothing after a silence. Its job is deleted when the next one is asked for."""
        working = self._runner.get_loop().create_task(self._work(concurrency=CONCURRENCY))
        try:
            while True:
                yield self._runner.run(self._next())
        finally:
            working.cancel()
            self._runner.run(_ended(working))

    def close(self) -> None:
        self._runner.run(self._app.close_async())
        self._runner.close()

    async def _work(self, **options: Any) -> None:
        await self._app.run_worker_async(delete_jobs="always", install_signal_handlers=False, **options)

    async def _take(self, body: str) -> None:
        self._bodies.put_nowait(base64.b64decode(body))

    async def _next(self) -> list[bytes]:
        try:
            return [await asyncio.wait_for(self._bodies.get(), SILENCE)]
        except TimeoutError:
            return []


async def _ended(task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        await task


def _connecting(place: str) -> dict[str, Any]:
    return {"conninfo": place, "kwargs": {"options": f"-c search_path={SCHEMA}"}}


def _execute(place: str, *statements: str) -> None:
    with psycopg.connect(place, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")
