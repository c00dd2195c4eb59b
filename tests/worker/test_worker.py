from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import shardq
from shardq import Backoff, Batch, DeadLetter, Message, Queue
from shardq.base.clock import SystemClock
from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore
from shardq.testing.seam import expire_caches
from shardq.worker import ShellCommand, Worker


def fill(queue: Queue, count: int) -> None:
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(count)])


def test_a_worker_calls_its_handler_with_every_message_and_leaves_an_empty_queue(queue: Queue) -> None:
    fill(queue, 250)
    bodies: list[bytes] = []
    report = Worker(queue, lambda message: bodies.append(message.body), idle_exit=0).run()
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(250)]
    assert (report.worked, report.failed, report.in_flight) == (250, 0, 0)
    assert report.batches >= 3
    assert queue.shard_states() == () or queue.counts().in_flight == queue.counts().ready == 0


def test_what_fails_comes_back_while_the_rest_of_its_batch_is_acked(queue: Queue) -> None:
    fill(queue, 10)

    def handler(message: Message) -> None:
        if message.body == b"3" and message.deliveries == 1:
            raise ValueError("three")

    report = Worker(queue, handler, idle_exit=0.3, retry_delay=0.01).run()
    assert (report.worked, report.failed, report.dead_lettered) == (10, 1, 0)
    assert report.last_failure == "ValueError: three"


@pytest.mark.parametrize("by_batch", [False, True])
def test_each_failure_of_a_handler_is_logged_with_the_message_and_the_traceback(
    queue: Queue, caplog: pytest.LogCaptureFixture, by_batch: bool
) -> None:
    identity = queue.producer().send(b"x")

    def charge(_: object) -> None:
        raise ValueError("no money")

    Worker(queue, charge, idle_exit=0, retry_delay=60, by_batch=by_batch).run()  # type: ignore[call-overload]
    (record,) = [record for record in caplog.records if record.name.startswith("shardq.worker")]
    assert record.levelname == "WARNING"
    assert f"message {identity} failed, delivery 1: ValueError: no money" in record.getMessage()
    assert "in charge" in caplog.text
    assert "shardq/worker" not in caplog.text


LONG = "no money " * 300_000


def fails(_: object) -> None:
    raise ValueError(LONG)


def fails_by_another(_: object) -> None:
    try:
        fails(_)
    except ValueError as error:
        raise OSError("no bank") from error


def asks_for_another_try(_: object) -> None:
    raise shardq.Retry(reason=LONG)


@pytest.mark.parametrize("by_batch", [False, True])
@pytest.mark.parametrize("charge", [fails, fails_by_another, asks_for_another_try])
def test_of_a_long_text_of_an_error_only_the_first_characters_are_told(
    queue: Queue, caplog: pytest.LogCaptureFixture, charge: Callable[[object], None], by_batch: bool
) -> None:
    fill(queue, 1)
    report = Worker(queue, charge, idle_exit=0, retry_delay=60, by_batch=by_batch).run()  # type: ignore[call-overload]
    assert "no money no money" in caplog.text
    assert "(2,700,0" in caplog.text
    assert len(caplog.text) < 10_000
    assert len(report.last_failure) < 3_000
    if charge is not asks_for_another_try:
        assert f"in {charge.__name__}" in caplog.text
        assert "in fails" in caplog.text
        assert "shardq/worker" not in caplog.text


def test_the_failure_of_a_command_is_logged_without_a_traceback(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 1)
    Worker(queue, ShellCommand("echo no money >&2; exit 3"), idle_exit=0, retry_delay=60).run()
    assert "failed, delivery 1: CommandFailed: exit code 3: no money" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_worker_that_starts_on_a_paused_queue_says_why_it_waits(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 1)
    queue.pause()
    assert Worker(queue, print, idle_exit=0).run().worked == 0
    assert "queue jobs is paused" in caplog.text


def test_a_failed_message_waits_for_its_back_off(queue: Queue) -> None:
    fill(queue, 1)

    def handler(message: Message) -> None:
        raise ValueError

    Worker(queue, handler, idle_exit=0, retry_delay=60).run()
    assert (queue.counts().ready, queue.counts().delayed) == (0, 1)
    wait = (queue.peek()[0].due.timestamp()) - time.time()
    assert 25 < wait <= 60


def test_after_its_last_delivery_a_message_is_a_dead_letter_that_tells_why(
    client: Client, queue: Queue
) -> None:
    fill(queue, 5)

    def handler(message: Message) -> None:
        raise KeyError(f"no {message.body.decode()} \udc80")

    report = Worker(queue, handler, idle_exit=0.4, retry_delay=0.01).run()
    assert (report.failed, report.dead_lettered) == (15, 5)
    letters = client.queue("jobs.dead").peek(10)
    reasons = {letter.headers["shardq-reason"] for letter in letters}
    assert reasons == {f"KeyError: 'no {number} \\udc80'" for number in range(5)}
    assert {letter.headers["shardq-deliveries"] for letter in letters} == {3}


def no_text(*_: object) -> str:
    raise RuntimeError("no text")


@pytest.mark.parametrize("broken", ["__str__", "__bool__"])
def test_an_error_that_cannot_tell_what_it_is_about_is_a_failure_like_any_other(
    client: Client, queue: Queue, broken: str
) -> None:
    silent_error: type[Exception] = type("SilentError", (Exception,), {"__str__": no_text, broken: no_text})

    def handler(message: Message) -> None:
        if message.body == b"0":
            if message.deliveries == 1:
                raise silent_error
            raise DeadLetter from silent_error()

    fill(queue, 3)
    worker = Worker(queue, handler, idle_exit=0.4, retry_delay=0.01)
    with suppress(RuntimeError):  # no test can report it: the error that it came from cannot be written
        worker.run()
    report = worker.report
    assert (report.worked, report.dead_lettered) == (2, 1)
    (letter,) = client.queue("jobs.dead").peek(10)
    assert letter.headers["shardq-reason"] == "SilentError"


def test_an_error_of_a_megabyte_is_not_in_every_report(queue: Queue) -> None:
    def handle(_message: Message) -> None:
        raise ValueError("x" * 1_000_000)

    fill(queue, 1)
    assert len(Worker(queue, handle, idle_exit=0).run().last_failure or "") == 500


def test_a_queue_without_max_deliveries_never_gives_a_message_up(queue: Queue) -> None:
    queue.alter(max_deliveries=None)
    fill(queue, 1)
    seen: list[int] = []

    def handler(message: Message) -> None:
        seen.append(message.deliveries)
        if len(seen) < 6:
            raise ValueError

    report = Worker(queue, handler, idle_exit=0.3, retry_delay=0.001).run()
    assert (seen, report.worked) == ([1, 2, 3, 4, 5, 6], 1)


def test_a_batch_handler_gets_the_batch_and_may_settle_parts_of_it(queue: Queue) -> None:
    fill(queue, 20)
    sizes: list[int] = []

    def handler(batch: Batch) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            batch[0].ack()
            raise RuntimeError("after one")

    report = Worker(queue, handler, by_batch=True, batch=20, idle_exit=0.3, retry_delay=0.01).run()
    assert (report.failed, report.lease_lost) == (sizes[0], 0)
    assert sum(sizes) == 20 + sizes[0] - 1


def test_a_stop_ends_after_the_message_at_hand_and_gives_the_others_back_uncounted(queue: Queue) -> None:
    fill(queue, 50)
    worker: Worker = Worker(queue, lambda _: worker.stop(), batch=50)
    report = worker.run()
    assert (report.worked, report.returned) == (1, 49)
    assert {message.deliveries for message in queue.peek(100)} == {0}
    assert queue.counts().ready == 49


def test_a_stop_before_the_start_or_while_waiting_ends_at_once(queue: Queue) -> None:
    worker = Worker(queue, print)
    worker.stop()
    assert worker.run().batches == 0
    waiting = Worker(queue, print)
    timer = threading.Timer(0.2, waiting.stop)
    timer.start()
    started = time.monotonic()
    waiting.run()
    timer.join()
    assert time.monotonic() - started < 3


def test_a_stop_that_comes_within_a_stop_ends_the_worker_all_the_same(queue: Queue) -> None:
    worker = Worker(queue, print, idle_exit=0)
    worker.run()
    stopping = threading.Thread(target=_stop_at_each_step, args=[worker.stop], daemon=True)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()


def _stop_at_each_step(stop: Callable[[], None]) -> None:
    """Stop, and stop again at each step of that, as the handlers of signals do that come one shortly after another."""

    def trace(_frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        stop()
        return trace

    sys.settrace(trace)
    try:
        stop()
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("by_batch", [False, True])
@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (SystemExit(0), "HandlerExited: SystemExit(0)"),
        (SystemExit("usage: program FILE"), "HandlerExited: SystemExit('usage: program FILE')"),
        (GeneratorExit(), "HandlerExited: GeneratorExit()"),
        (asyncio.CancelledError(), "CancelledError: "),
    ],
)
def test_what_a_handler_raises_that_is_no_exception_is_a_failure_of_its_message(
    queue: Queue, client: Client, raised: BaseException, reason: str, by_batch: bool
) -> None:
    queue.alter(max_deliveries=1)
    queue.producer().send_many([b"bad", b"good"])

    def handle(given: Message | Batch) -> None:
        if b"bad" in (given.bodies if isinstance(given, Batch) else [given.body]):
            raise raised

    report = Worker(queue, handle, by_batch=by_batch, idle_exit=0).run()  # type: ignore[call-overload]
    assert (report.worked, report.failed, report.dead_lettered) == (1, 1, 1)
    assert str(client.queue("jobs.dead").peek()[0].headers["shardq-reason"]).startswith(reason)


def test_an_on_error_that_leaves_is_logged_and_the_message_tried_again(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.producer().send(b"bad")

    def handle(_: Message) -> None:
        raise ValueError

    def leave(_: Message, __: Exception) -> None:
        raise SystemExit(0)

    report = Worker(queue, handle, on_error=leave, retry_delay=3600, idle_exit=0).run()
    assert (report.failed, queue.counts().delayed) == (1, 1)
    assert "on_error failed" in caplog.text


def test_ctrl_c_in_a_handler_settles_the_batch_before_it_goes_on_its_way(queue: Queue) -> None:
    fill(queue, 10)
    seen: list[bytes] = []

    def handler(message: Message) -> None:
        seen.append(message.body)
        if len(seen) == 3:
            raise KeyboardInterrupt

    worker = Worker(queue, handler, batch=10)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    counts = queue.counts()
    assert (counts.ready, counts.in_flight) == (8, 0)
    assert (worker.report.worked, worker.report.returned, worker.report.in_flight) == (2, 7, 0)


def test_what_is_lost_is_counted_and_not_begun_and_the_worker_goes_on(client: Client) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=0.2)
    fill(queue, 3)
    seen: list[bytes] = []

    def handler(message: Message) -> None:
        seen.append(message.body)
        if len(seen) == 1:  # hangs for longer than the lease, and somebody else takes over
            time.sleep(0.3)
            with queue.consumer() as other:
                other.receive(10, wait=1).ack()

    report = Worker(queue, handler, keep_leases=False, idle_exit=0.3).run()
    assert (len(seen), report.worked, report.lease_lost) == (1, 1, 3)


def test_kept_leases_let_a_handler_take_longer_than_the_visibility_timeout(client: Client) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1.5)
    fill(queue, 2)
    report = Worker(queue, lambda _: time.sleep(1.8), idle_exit=0).run()
    assert (report.worked, report.lease_lost, report.batches) == (2, 0, 1)


def test_a_worker_waits_for_a_store_that_is_away_and_acks_then(url: str, queue: Queue) -> None:
    fill(queue, 5)
    faults = tuple(Fault("acknowledge", nth, FaultKind.UNAVAILABLE) for nth in range(1, 4))
    faults += tuple(Fault("claim", nth, FaultKind.LOST_RESPONSE) for nth in range(2, 4))
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan(faults=faults))
    with Client(store, retry_seconds=0) as client:
        report = Worker(client.queue("jobs"), lambda _: None, idle_exit=0.2).run()
    assert report.worked == 5
    assert report.store_faults >= 1
    assert queue.counts().in_flight == 0


def test_a_worker_ends_with_an_error_that_cannot_pass(client: Client, queue: Queue) -> None:
    fill(queue, 1)

    def handler(message: Message) -> None:
        client.delete_queue("jobs")

    with pytest.raises(shardq.QueueNotFound):
        Worker(queue, handler).run()


def test_what_is_at_hand_of_a_queue_that_is_deleted_is_not_begun(
    client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shardq.worker.gate.RECHECK_SECONDS", 0.0)
    fill(queue, 5)
    handled: list[Message] = []

    def handler(message: Message) -> None:
        handled.append(message)
        if len(handled) == 2:
            client.delete_queue("jobs")
            expire_caches(queue)

    worker = Worker(queue, handler)
    with pytest.raises(shardq.QueueNotFound):
        worker.run()
    assert len(handled) == worker.report.worked == 2
    assert "received messages that were not begun are not worked: queue 'jobs' does not exist" in caplog.text


def test_a_queue_that_is_deleted_and_created_again_is_taken_up_again(
    client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.worker.gate.RECHECK_SECONDS", 0.0)
    fill(queue, 3)
    bodies: list[bytes] = []

    def handler(message: Message) -> None:
        bodies.append(message.body)
        if len(bodies) == 1:
            client.delete_queue("jobs")
            client.create_queue("jobs").producer().send(b"new")
            expire_caches(queue)

    Worker(queue, handler, idle_exit=0).run()
    assert bodies[-1] == b"new"


def test_a_store_that_does_not_answer_stops_nothing_that_is_at_hand(
    url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.worker.gate.RECHECK_SECONDS", 0.0)
    fill(queue, 3)
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan())
    with Client(store, retry_seconds=0) as client:
        jobs, handled = client.queue("jobs"), []

        def handler(message: Message) -> None:
            handled.append(message)
            expire_caches(jobs)
            away = len(handled) < 3
            store.plan = FaultPlan(probability=float(away), methods=frozenset({"load_queue"}))

        assert Worker(jobs, handler, idle_exit=0).run().worked == 3


def test_a_shell_command_gets_the_body_and_its_last_line_on_stderr_is_the_reason(queue: Queue) -> None:
    fill(queue, 2)
    command = ShellCommand(
        'read body || true; test "$body" = 0 || { echo wrong >&2; exit 4; }; test -n "$SHARDQ_ID"'
    )
    report = Worker(queue, command, idle_exit=0, retry_delay=60).run()
    assert (report.worked, report.failed) == (1, 1)
    assert report.last_failure == "CommandFailed: exit code 4: wrong"


@pytest.mark.parametrize(("exit_code", "failure"), [(0, None), (3, "CommandFailed: exit code 3: no money")])
def test_a_command_is_done_when_it_ends_whatever_processes_it_leaves_behind(
    queue: Queue, tmp_path: Path, exit_code: int, failure: str | None
) -> None:
    with queue.producer() as producer:
        producer.send(bytes(300_000))  # more than a pipe holds
    os.mkfifo(tmp_path / "end")
    command = ShellCommand(f"exec 3<&0; cat '{tmp_path}/end' >&2 & echo no money >&2; exit {exit_code}")
    worker = Worker(queue, command, idle_exit=0, retry_delay=60)
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(20)
    ended = not thread.is_alive()
    (tmp_path / "end").write_bytes(b"")  # what was left behind reads that it may end
    thread.join()
    assert ended
    assert (worker.report.worked, worker.report.last_failure) == (int(exit_code == 0), failure)


def test_of_what_a_command_writes_to_stderr_only_the_end_is_kept(queue: Queue) -> None:
    # Given a command that may write no file, and fills its stderr
    fill(queue, 1)
    flood = "ulimit -f 0; { yes | head -c 3000000 && echo no money; } >&2; exit 3"
    report = Worker(queue, ShellCommand(flood), idle_exit=0, retry_delay=60).run()
    assert report.last_failure == "CommandFailed: exit code 3: no money"


def test_the_back_off_doubles_up_to_its_limit_and_is_partly_random() -> None:
    backoff = Backoff(1.0, 10.0)
    for attempt, full in ((1, 1.0), (2, 2.0), (3, 4.0), (5, 10.0), (100_000, 10.0)):
        delays = {backoff.delay(attempt) for _ in range(50)}
        assert all(full / 2 <= delay <= full for delay in delays)
        assert len(delays) > 1


@pytest.mark.parametrize("options", [{"batch": 0}, {"retry_delay": -1}, {"idle_exit": -1}, {"batch": True}])
def test_options_that_make_no_sense_are_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(shardq.InvalidSetting):
        Worker(queue, print, **options)


def test_a_part_of_a_batch_is_settled_without_the_others(queue: Queue) -> None:
    fill(queue, 6)
    with queue.consumer() as consumer:
        batch = consumer.receive(6)
        part = batch.part(list(batch)[1:3])
        assert [message.body for message in part] == [message.body for message in list(batch)[1:3]]
        part.ack()
        batch.release(count=False)
    assert queue.counts().ready == len(batch) - 2
