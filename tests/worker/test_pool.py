from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import shardq
from shardq import Queue
from shardq.worker import PoolReport, WorkerPool, WorkersFailing, slot
from shardq.worker.shell_command import ShellCommand
from shardq.worker.signals import stop_signals, without_interrupts
from tests.processes import eventually


def fill(queue: Queue, count: int, body: bytes = b"x") -> None:
    with queue.producer() as producer:
        producer.send_many([body] * count)


def test_a_pool_works_a_queue_off_and_ends_when_all_are_idle(url: str, queue: Queue, handlers: str) -> None:
    fill(queue, 1000)
    seen: list[PoolReport] = []
    pool = WorkerPool(url, "jobs", f"{handlers}:nothing", processes=2, idle_exit=0.5, on_progress=seen.append)
    report = pool.run()
    assert (report.total.worked, report.total.in_flight, report.processes, report.restarts) == (1000, 0, 0, 0)
    assert max(progress.processes for progress in seen) == 2
    assert queue.counts().ready == 0


@pytest.mark.parametrize("threads", [1, 4])
def test_sigterm_ends_a_pool_cleanly_and_gives_back_what_was_not_started(
    url: str, queue: Queue, handlers: str, threads: int
) -> None:
    fill(queue, 100)

    def terminate(report: PoolReport) -> None:
        if report.total.worked and not told:
            told.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    told: list[bool] = []
    report = WorkerPool(url, "jobs", f"{handlers}:slow", on_progress=terminate, threads=threads).run()
    counts = queue.counts()
    assert 0 < report.total.worked < 100
    assert (counts.ready, counts.in_flight) == (100 - report.total.worked, 0)
    if threads == 1:  # with threads not all of the batch is held
        assert report.total.returned == 100 - report.total.worked
    assert {message.deliveries for message in queue.peek(100)} == {0}


def test_a_ctrl_c_that_comes_while_a_process_is_started_is_not_lost() -> None:
    told: list[int] = []
    with stop_signals(lambda: told.append(len(told))):
        with without_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
        assert eventually(lambda: told == [0])  # another thread of the process may have got the signal


def test_processes_of_a_pool_ignore_ctrl_c_and_block_it_for_nobody(
    url: str, queue: Queue, tmp_path: Path
) -> None:
    fill(queue, 1)
    state = tmp_path / "state"
    command = f"kill -INT $PPID; {sys.executable} -c 'import signal; print(signal.pthread_sigmask(0, ()))' > {state}"
    report = WorkerPool(url, "jobs", ShellCommand(command), idle_exit=0.3).run()
    assert (report.total.worked, report.restarts) == (1, 0)
    assert state.read_text() == "set()\n"


@pytest.mark.long
def test_a_process_that_somebody_else_tells_to_end_is_replaced(
    url: str, queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 5)
    command = f"test -e {tmp_path}/told || {{ touch {tmp_path}/told; kill -TERM $PPID; }}"
    report = WorkerPool(url, "jobs", ShellCommand(command), idle_exit=2).run()
    assert (report.total.worked, report.total.returned, report.restarts) == (5, 4, 1)
    assert "shardq-worker-0 ended on a SIGTERM" in caplog.text


def test_a_second_stop_ends_at_once(url: str, queue: Queue, handlers: str) -> None:
    fill(queue, 1, b"/")

    def stop(report: PoolReport) -> None:
        if report.total.in_flight:
            pool.stop()

    pool = WorkerPool(url, "jobs", time_waster, on_progress=stop)
    started = time.monotonic()
    pool.run()
    assert time.monotonic() - started < 300


@pytest.mark.parametrize("hangs", [False, True], ids=["told twice to end", "killed as it hangs"])
def test_a_process_that_is_ended_at_once_leaves_nothing_running(
    url: str, queue: Queue, tmp_path: Path, hangs: bool
) -> None:
    fill(queue, 3)
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    begun: list[bytes] = []

    def end(report: PoolReport) -> None:
        if not begun and report.total.in_flight:
            with suppress(BlockingIOError):  # its command has the pipe open, and has written nothing yet
                begun.extend(filter(None, [os.read(pipe, 9)]))
        if report.left_in_flight if hangs else begun:
            pool.stop()

    command = ShellCommand(f"exec 3>{tmp_path}/pipe; echo begun >&3; sleep 600; true")
    pool = WorkerPool(url, "jobs", command, handler_timeout=1 if hangs else None, on_progress=end)
    report = pool.run()
    assert (report.left_in_flight, report.total.in_flight, report.total.worked) == (3, 0, 0)
    os.set_blocking(pipe, True)
    while os.read(pipe, 9):  # to its end, which it has when no process has it open any more
        pass
    os.close(pipe)


def time_waster(message: shardq.Message) -> None:
    time.sleep(600)


@pytest.mark.long
def test_a_process_that_is_killed_is_replaced_and_its_messages_come_back(
    url: str, client: shardq.Client, tmp_path: Path, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1)
    fill(queue, 5, str(tmp_path / "died").encode())
    report = WorkerPool(url, "short", f"{handlers}:die_once", idle_exit=1.5).run()
    assert (report.total.worked, report.restarts) == (5, 1)


def test_a_process_that_hangs_is_killed_and_replaced(
    url: str, client: shardq.Client, tmp_path: Path, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1)
    fill(queue, 2, str(tmp_path / "hung").encode())
    report = WorkerPool(url, "short", f"{handlers}:hang_once", idle_exit=1.5, handler_timeout=1).run()
    assert (report.total.worked, report.restarts) == (2, 1)


@pytest.mark.parametrize(
    ("handler", "timeout"),
    [
        ("stand_still_once", 1),
        ("become_another_program_once", 1),
        ("become_another_program_once", None),
        ("leave_a_thread_and_interrupt_once", None),
    ],
)
def test_a_process_that_reports_no_more_is_killed_and_replaced(
    url: str,
    client: shardq.Client,
    tmp_path: Path,
    handlers: str,
    monkeypatch: pytest.MonkeyPatch,
    handler: str,
    timeout: float | None,
) -> None:
    monkeypatch.setattr(slot, "SILENT_SECONDS", 4)
    monkeypatch.setattr(slot, "ORPHAN_SECONDS", 0.1)
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1)
    fill(queue, 2, str(tmp_path / "still").encode())
    pool = WorkerPool(
        url,
        "short",
        f"{handlers}:{handler}",
        idle_exit=1.5,
        handler_timeout=timeout,
        on_progress=within_bounds,
    )
    report = pool.run()
    assert (report.total.worked, report.restarts) == (2, 1)


def within_bounds(report: PoolReport) -> None:
    assert report.seconds < 60, "the pool does not end"


def test_a_process_in_which_a_handler_has_left_a_thread_ends(
    url: str, queue: Queue, handlers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(slot, "ORPHAN_SECONDS", 0.1)
    fill(queue, 1)
    pool = WorkerPool(url, "jobs", f"{handlers}:leave_a_thread", idle_exit=0.1, on_progress=within_bounds)
    report = pool.run()
    assert (report.total.worked, report.restarts) == (1, 0)


@pytest.mark.long
def test_a_slow_progress_function_hides_no_handler_that_hangs(
    url: str, client: shardq.Client, handlers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "STILL_SECONDS", 0.3)
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1)
    fill(queue, 2, str(tmp_path / "hung").encode())
    report = WorkerPool(
        url,
        "short",
        f"{handlers}:hang_once",
        idle_exit=1.5,
        handler_timeout=1,
        on_progress=lambda _: time.sleep(0.5),
    ).run()
    assert (report.total.worked, report.restarts) == (2, 1)


@pytest.mark.long
def test_a_process_that_waits_for_the_store_does_not_hang(url: str, queue: Queue, handlers: str) -> None:
    fill(queue, 1)
    db = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0], isolation_level=None)
    begun: list[float] = []

    def hold_up_the_ack(report: PoolReport) -> None:
        if not begun and report.total.in_flight:
            begun.append(time.monotonic())
            db.execute("BEGIN IMMEDIATE")
        if db.in_transaction and time.monotonic() - begun[0] > 5:
            db.execute("ROLLBACK")

    pool = WorkerPool(
        url, "jobs", f"{handlers}:nap", idle_exit=0.3, handler_timeout=2, on_progress=hold_up_the_ack
    )
    report = pool.run()
    db.close()
    assert (report.total.worked, report.total.lease_lost, report.restarts) == (1, 0, 0)


def test_a_handler_can_end_a_process_that_it_has_started(url: str, queue: Queue, handlers: str) -> None:
    fill(queue, 1)
    report = WorkerPool(url, "jobs", f"{handlers}:end_a_child", idle_exit=0.3).run()
    assert (report.total.worked, report.total.failed, report.restarts) == (1, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize("body", [b"exit", b"error", b"return"])
def test_a_child_that_a_handler_has_forked_settles_nothing_and_works_nothing(
    url: str, queue: Queue, handlers: str, body: bytes
) -> None:
    fill(queue, 5, body)
    report = WorkerPool(url, "jobs", f"{handlers}:fork", idle_exit=0.3).run()
    assert (report.total.worked, report.total.lease_lost, report.restarts) == (5, 0, 0)
    assert queue.counts().in_flight == queue.counts().ready == 0


def test_processes_that_die_as_often_as_they_start_end_the_pool(
    url: str, queue: Queue, handlers: str
) -> None:
    queue.alter(visibility_timeout=0.2, max_deliveries=None)
    fill(queue, 1)
    with pytest.raises(WorkersFailing, match="exit code -9"):
        WorkerPool(url, "jobs", f"{handlers}:die", max_restarts=1).run()


def test_processes_that_die_after_settled_messages_do_not_end_the_pool(
    url: str, client: shardq.Client, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=5, max_deliveries=1)
    queue.producer().send_many([b"good", b"poison"] * 3)
    pool = WorkerPool(url, "short", f"{handlers}:die_on_poison", batch=1, idle_exit=6, max_restarts=1)
    assert pool.run().restarts == 3
    assert client.queue("short.dead").counts().ready == 3


def test_processes_that_die_before_anything_is_settled_end_the_pool(
    url: str, client: shardq.Client, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1, max_deliveries=None)
    queue.producer().send_many([b"good", b"poison"])
    pool = WorkerPool(
        url,
        "short",
        f"{handlers}:die_on_poison_after_half_a_second",
        max_restarts=1,
        on_progress=within_bounds,
    )
    with pytest.raises(WorkersFailing, match="exit code 0"):
        pool.run()


def test_processes_that_die_after_messages_whose_leases_were_lost_end_the_pool(
    url: str, client: shardq.Client, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1, max_deliveries=4)
    queue.producer().send(url.encode())
    pool = WorkerPool(url, "short", f"{handlers}:lose_then_die", batch=1, idle_exit=30, max_restarts=1)
    with pytest.raises(WorkersFailing, match=r"2\. time in a row without a settled message"):
        pool.run()


def test_a_handler_that_leaves_fails_its_messages_and_ends_no_process(
    url: str, client: shardq.Client, queue: Queue, handlers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue.alter(max_deliveries=1)
    fill(queue, 3)
    report = WorkerPool(url, "jobs", f"{handlers}:leave", idle_exit=0.5).run()
    assert (report.restarts, report.total.worked, report.total.dead_lettered) == (0, 0, 3)
    assert client.queue("jobs.dead").counts().ready == 3
    assert "HandlerExited: SystemExit(0)" in capfd.readouterr().err


def test_a_process_that_ends_itself_without_an_error_is_replaced(
    url: str, client: shardq.Client, tmp_path: Path, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1)
    fill(queue, 2, str(tmp_path / "left").encode())
    report = WorkerPool(url, "short", f"{handlers}:leave_at_once_once", idle_exit=1.5).run()
    assert (report.total.worked, report.restarts) == (2, 1)


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        ("nowhere", "names no function"),
        ("nowhere:x", "ModuleNotFoundError"),
        ("os:nothing_there", "AttributeError"),
        ("os:sep", "is a str"),
    ],
)
def test_a_handler_that_cannot_be_loaded_ends_the_pool_at_once(
    url: str, queue: Queue, handler: str, text: str
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=text):
        WorkerPool(url, "jobs", handler, processes=2).run()


def test_an_error_that_ends_a_process_after_a_stop_is_raised(
    url: str, queue: Queue, handlers: str, tmp_path: Path
) -> None:
    fill(queue, 1, str(tmp_path / "stopped").encode())

    def stop(report: PoolReport) -> None:
        if report.total.in_flight and not report.stops:
            pool.stop()
        elif report.stops:
            (tmp_path / "stopped").touch()

    pool = WorkerPool(url, "jobs", f"{handlers}:late_generator", on_progress=stop)
    with pytest.raises(shardq.InvalidSetting):
        pool.run()


def test_a_queue_that_does_not_exist_ends_the_pool_at_once(url: str, queue: Queue, handlers: str) -> None:
    with pytest.raises(shardq.QueueNotFound):
        WorkerPool(url, "others", f"{handlers}:nothing").run()


def test_a_pool_in_another_thread_is_stopped_by_a_call_and_takes_batches(
    url: str, queue: Queue, handlers: str
) -> None:
    fill(queue, 10)
    pool = WorkerPool(url, "jobs", f"{handlers}:whole", by_batch=True)
    thread = threading.Thread(target=pool.run)
    thread.start()
    deadline = time.monotonic() + 60
    while pool.report.total.worked < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    pool.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert pool.report.total.worked == 10
