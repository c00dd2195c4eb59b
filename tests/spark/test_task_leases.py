"""A task keeps the leases of what it has claimed while it reads, whatever becomes of the driver meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from shardq.core.receiving.named_claims import NamedClaims
from shardq.spark import rows, stream_upkeep
from shardq.spark.claim_stream import ClaimPartition, ClaimStream, partitions_of
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from shardq.spark.stream_upkeep import interval_of
from tests.processes import eventually
from tests.spark.every_store import on_every_store

ROOT = Path(__file__).parents[2]
COUNT = 10_000  # of one claim
LEASE_SECONDS = 12  # a thread that extends it every four may have to wait for a busy machine
PAUSE_SECONDS = LEASE_SECONDS + 3.0  # what was extended last before it is over by then
PATIENCE_SECONDS = 900.0  # a Spark of its own takes seconds to start, or minutes where much else runs


@pytest.fixture
def task(url: str, make_queue, monkeypatch) -> Callable[..., tuple[Any, ClaimStream, ClaimPartition]]:
    """A queue with six messages, and a task that reads them in batches of one, on an executor."""

    def made(**options: Any) -> tuple[Any, ClaimStream, ClaimPartition]:
        monkeypatch.setattr(rows, "BATCH_MESSAGES", 1)
        queue = make_queue(shards=1, time_shards=1)
        queue.producer(bundle_messages=1).send_many([b"x"] * 6)
        chosen = ClaimStreamOptions(url=url, queue=queue.name, **options)
        reader = ClaimStream(chosen, schema_of(chosen))
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
        (planned,) = partitions_of(end, chosen)
        return queue, reader, planned

    return made


def test_what_is_left_of_a_lease_when_it_is_extended_is_at_least_two_thirds() -> None:
    assert [interval_of(lease) for lease in (3.0, 90.0, 300.0, 1_800.0)] == [1.0, 30.0, 30.0, 30.0]


def test_a_task_extends_its_claims_until_it_has_read_or_is_given_up(task, monkeypatch, begun_threads) -> None:
    monkeypatch.setattr(stream_upkeep, "MOST_SECONDS", 0.01)
    extended: list[int] = []
    extend = NamedClaims.extend
    monkeypatch.setattr(
        NamedClaims, "extend", lambda own, names: extended.append(len(names)) or extend(own, names)
    )
    for last in (False, True):
        _, reader, planned = task()
        batches = reader.read(planned)
        next(batches)
        del extended[:]
        assert eventually(lambda: len(extended) >= 3)
        assert set(extended) == {1}
        for _ in batches if last else ():
            pass
        batches.close()
        assert not begun_threads("shardq-spark-heartbeat")


def test_an_extension_that_fails_is_tried_again(task, monkeypatch) -> None:
    monkeypatch.setattr(stream_upkeep, "MOST_SECONDS", 0.01)
    tries: list[int] = []

    def fail(own: NamedClaims, names: Any) -> int:
        tries.append(1)
        raise OSError("the network is away")

    monkeypatch.setattr(NamedClaims, "extend", fail)
    _, reader, planned = task()
    batches = reader.read(planned)
    next(batches)
    assert eventually(lambda: len(tries) >= 2)
    assert sum(batch.num_rows for batch in batches) == 5


@on_every_store
def test_nothing_is_delivered_elsewhere_while_a_task_reads_and_all_of_it_soon_after(task) -> None:
    queue, reader, planned = task(lease_seconds=1.0)
    batches = reader.read(planned)
    first = next(batches)
    with queue.consumer() as thief:
        assert not thief.receive(6, wait=3.0)
        assert first.num_rows + sum(batch.num_rows for batch in batches) == 6
        found = 0
        while found < 6:
            taken = thief.receive(6, wait=60.0)
            assert taken, "they did not come back"
            found += len(taken)
            taken.ack()


@pytest.mark.timeout(2 * PATIENCE_SECONDS + 120)
@on_every_store
def test_a_driver_that_stands_still_for_longer_than_the_leases_loses_nothing_that_tasks_read(
    url, make_queue, tmp_path
) -> None:
    queue = make_queue(shards=1, time_shards=1)
    queue.producer().send_many([f"{number:04}".encode() * 1_000 for number in range(COUNT)])
    with _driver(url, queue.name, tmp_path) as driver:
        come = eventually(
            lambda: driver.poll() is not None or queue.counts().in_flight == COUNT, PATIENCE_SECONDS
        )
        assert come
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3_000:]
        stopped = _processes_of_the_driver(driver.pid)
        with _paused(stopped), queue.consumer() as thief:
            assert not thief.receive(COUNT, wait=PAUSE_SECONDS)
        assert driver.wait(PATIENCE_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3_000:]
    assert (tmp_path / "found").read_text() == f"{COUNT} rows, {COUNT} different, deliveries 1 to 1"
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 0)


@contextmanager
def _driver(url: str, queue: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.spark.slow_driver", url, queue, str(folder), str(LEASE_SECONDS)]
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield driver
    finally:
        for one in [*psutil.Process(driver.pid).children(recursive=True)] if driver.poll() is None else []:
            with suppress(psutil.NoSuchProcess):  # it ended with the one before it
                one.kill()
        driver.kill()
        driver.wait()


def _processes_of_the_driver(pid: int) -> list[psutil.Process]:
    """All but the workers that run tasks, which are on other machines elsewhere."""
    found = [psutil.Process(pid)]
    for process in found:
        with suppress(psutil.NoSuchProcess):  # a short one that ended meanwhile
            found += [child for child in process.children() if not _runs_tasks(child)]
    return found


def _runs_tasks(process: psutil.Process) -> bool:
    try:
        return "pyspark.worker" in process.cmdline()
    except psutil.NoSuchProcess:  # it ended a moment ago, and its parent has not seen that yet
        return True


@contextmanager
def _paused(processes: list[psutil.Process]) -> Iterator[None]:
    _signal_all(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal_all(processes, signal.SIGCONT)


def _signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(process.pid, number)
