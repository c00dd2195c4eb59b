"""Workers of tasks: several tasks at a time, and what is left when one ends or dies at any moment."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.queue_internals import one_by_one
from shardq.storage.opening import open_store
from shardq.tasks import Result, TaskFailed, TaskPool, Tasks, TaskWorker, chain, current_task
from shardq.tasks.entries import MAX_RESULT_BYTES
from shardq.tasks.registry import tasks_named
from shardq.testing import ManualClock
from shardq.testing.seam import expire_caches
from shardq.worker import PoolReport
from shardq.worker.threads import EndedUnits, Unit
from tests.dying_store import Died
from tests.tasks.dying import Dying

SHARDQ = Path(sys.executable).with_name("shardq")


def test_as_many_tasks_run_at_a_time_as_there_are_threads_plain_and_async(tasks: Tasks) -> None:
    everybody = threading.Barrier(4, timeout=60)

    @tasks.task
    def plain() -> None:
        everybody.wait()

    @tasks.task
    async def on_the_loop() -> int:
        await asyncio.to_thread(everybody.wait)
        return threading.get_ident()

    tasks.send_many([plain.signature(), plain.signature()])
    results = on_the_loop.send_many([on_the_loop.signature(), on_the_loop.signature()])
    report = TaskWorker(tasks, tasks.task_client.client, threads=4, idle_exit=0).run()
    assert (report.worked, report.in_flight) == (4, 0)
    assert len({result.get(timeout=0) for result in results}) == 1


def test_a_slow_task_does_not_hold_up_what_comes_after_it(tasks: Tasks) -> None:
    done = threading.Event()

    @tasks.task
    def slow() -> bool:
        return done.wait(60)

    @tasks.task
    def quick(last: bool) -> None:
        if last:
            done.set()

    result = slow.options(priority=0).send()
    quick.send_many(quick.signature(number == 499) for number in range(500))
    assert TaskWorker(tasks, tasks.task_client.client, threads=2, idle_exit=0).run().worked == 501
    assert result.get(timeout=0) is True


def test_what_a_task_sends_while_the_worker_looks_in_vain_runs_before_it_ends(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_in_vain = threading.Event()
    receive = Consumer.receive

    @tasks.task
    def first() -> bool:
        return looked_in_vain.wait(60)

    @tasks.task
    def last(found: bool) -> bool:
        return found

    def look(consumer: Consumer, *args: Any, **options: Any) -> Batch:
        batch = receive(consumer, *args, **options)
        if not batch and worker.report.in_flight:
            looked_in_vain.set()
            while worker.report.in_flight:
                time.sleep(0.01)
        return batch

    result = chain(first.signature(), last.then()).send()
    worker = TaskWorker(tasks, tasks.task_client.client, threads=1, idle_exit=0)
    monkeypatch.setattr(Consumer, "receive", look)
    worker.run()
    assert result.get(timeout=0) is True


def test_a_worker_that_is_told_to_stop_ends_what_runs_and_gives_the_rest_back(
    tasks: Tasks, client: shardq.Client
) -> None:
    @tasks.task
    def work() -> int:
        worker.stop()
        return 1

    results = work.send_many(work.signature() for _ in range(10))
    worker = TaskWorker(tasks, client, threads=1)
    report = worker.run()
    assert report.worked == 1
    assert [result.state for result in results].count("done") == 1
    counts = client.queue("tasks").counts()
    assert (counts.ready, counts.in_flight) == (9, 0)
    assert {message.deliveries for message in client.queue("tasks").peek()} == {0}


def test_a_waiter_in_another_thread_gets_the_result(tasks: Tasks) -> None:
    @tasks.task
    def work() -> str:
        return "done"

    result = work.send()
    found: list[str] = []
    waiter = threading.Thread(target=lambda: found.append(result.get(timeout=60)))
    waiter.start()
    TaskWorker(tasks, tasks.task_client.client, threads=1, idle_exit=0).run()
    waiter.join(60)
    assert found == ["done"]


def test_a_task_that_cancels_its_own_coroutine_and_returns_has_its_result(
    tasks: Tasks, client: shardq.Client
) -> None:
    @tasks.task
    async def cancels() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 7

    result = cancels.send()
    assert TaskWorker(tasks, client, idle_exit=0).run().worked == 1
    assert result.get(timeout=0) == 7


def leave() -> None:
    raise SystemExit(3)


async def leave_the_loop() -> None:
    raise SystemExit(3)


async def leave_beside() -> None:
    await asyncio.create_task(leave_the_loop())


@pytest.mark.parametrize("function", [leave, leave_the_loop, leave_beside])
@pytest.mark.parametrize("threads", [0, 2])
def test_system_exit_of_a_task_is_a_failure_and_the_worker_goes_on(
    tasks: Tasks, client: shardq.Client, function: Callable[[], object], threads: int
) -> None:
    leaves = tasks.task(name="leave", retry=1)(function)
    results = leaves.send_many([leaves.signature(), leaves.signature()])
    report = TaskWorker(tasks, client, threads=threads, idle_exit=0).run()
    assert (report.failed, report.dead_lettered) == (2, 2)
    for result in results:
        with pytest.raises(TaskFailed, match=r"HandlerExited: SystemExit\(3\)"):
            result.get(timeout=0)


def test_a_task_that_leaves_is_tried_again(tasks: Tasks, client: shardq.Client) -> None:
    tasks.task(name="leave")(leave).send()
    TaskWorker(tasks, client, threads=1, idle_exit=0).run()
    assert client.queue("tasks").counts().delayed == 1


def test_tasks_that_the_worker_does_not_know_and_arguments_of_another_version_are_dead_letters(
    tasks: Tasks, client: shardq.Client
) -> None:
    @tasks.task(name="renamed")
    def old(first: int, second: int) -> None: ...

    @tasks.task(name="changed")
    def before(first: int, gone: str) -> None: ...

    results = [old.send(1, 2), before.send(1, "x")]
    client.queue("tasks").producer().send(b"no task")
    later = Tasks()
    later.bind(client)

    @later.task(name="changed")
    def after(first: int, new: int = 1) -> None: ...

    report = later.drain()
    assert (report.dead_lettered, report.worked) == (3, 0)
    reasons = sorted(str(dead.headers["shardq-reason"]) for dead in client.queue("tasks.dead").peek())
    assert reasons[0].startswith(
        "ArgumentsRejected: task 'changed' takes (first: 'int', new: 'int' = 1) -> 'None'"
    )
    assert reasons[1].startswith("UnknownTask: this worker has no task 'renamed': load the module")
    assert reasons[2].startswith("UnknownTask: this worker has no task None")
    for result in results:
        with pytest.raises(TaskFailed):
            result.get(timeout=0)


def test_a_result_that_cannot_be_stored_is_a_failure_that_says_so(
    tasks: Tasks, client: shardq.Client
) -> None:
    @tasks.task
    def large() -> bytes:
        return bytes(MAX_RESULT_BYTES)

    @tasks.task
    def strange() -> object:
        return threading.Lock()

    results = [large.send(), strange.send()]
    assert tasks.drain().dead_lettered == 2
    with pytest.raises(TaskFailed, match="failed: ResultRejected: the result of task 'large' has") as failed:
        results[0].get(timeout=0)
    assert failed.value.failure.kind == "ResultRejected"
    with pytest.raises(TaskFailed, match=r"task 'strange', .* cannot be stored"):
        results[1].get(timeout=0)


def test_each_message_of_a_batch_is_a_batch_of_its_own(client: shardq.Client) -> None:
    queue = client.create_queue("letters")
    queue.producer().send_many(str(number).encode() for number in range(6))
    consumer = queue.consumer()
    first, last = consumer.receive(4), consumer.receive(1)
    first[0].ack()
    parts = one_by_one(first)
    assert [len(part) for part in parts] == [1] * 4
    assert [message for part in parts for message in part] == list(first)
    assert [part[0] for part in parts] == [first.part([message])[0] for message in first]
    parts[1].ack()
    parts[2].release()
    (alone,) = one_by_one(last)
    alone.ack()
    assert [message.settled for message in first] == [True, True, True, False]
    first.ack()
    assert last[0].settled
    assert sorted(each.body for each in queue.peek()) == [b"2", b"5"]


def test_a_worker_receives_hundreds_of_short_tasks_with_one_read(tasks: Tasks) -> None:
    @tasks.task(keep_result=0)
    def empty() -> None:
        pass

    tasks.send_many(empty.signature() for _ in range(2_000))
    report = TaskWorker(tasks, tasks.task_client.client, threads=0, idle_exit=0).run()
    assert report.worked == 2_000
    assert report.batches <= 8
    tasks.send_many(empty.signature() for _ in range(100))
    report = TaskWorker(tasks, tasks.task_client.client, threads=0, idle_exit=0, batch=10).run()
    assert report.batches == 10


@pytest.mark.parametrize(("threads", "retry"), [(0, 1), (0, None), (1, 1), (1, None), (4, None)])
def test_a_task_at_its_last_attempt_is_held_only_while_it_runs_so_that_no_other_one_takes_it_along(
    tasks: Tasks, client: shardq.Client, clock: ManualClock, retry: int | None, threads: int
) -> None:
    queue = client.create_queue("tasks", max_deliveries=2, visibility_timeout=30)
    held: list[tuple[int, int]] = []

    @tasks.task(retry=retry)
    def work() -> None:
        held.append((current_task().deliveries, queue.counts().in_flight))

    work.send_many(work.signature() for _ in range(5))
    if retry is None:  # a worker that has died, with all of them
        queue.consumer().receive(5)
        clock.advance(31)
    report = TaskWorker(tasks, client, threads=threads, idle_exit=0).run()
    assert held == [(1 if retry else 2, 1)] * 5
    assert (report.worked, report.dead_lettered) == (5, 0)


def test_a_task_at_its_last_attempt_waits_uncounted_for_those_that_run(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("tasks", max_deliveries=2, visibility_timeout=30)
    held: list[int] = []

    @tasks.task
    def work() -> None:
        held.append(queue.counts().in_flight)

    @tasks.task
    def slow() -> int:
        """Run until the worker holds the other one, and return how often that was delivered."""
        until = time.monotonic() + 60
        while not (seen := queue.get(tried.id)) or not seen.owner:
            assert time.monotonic() < until
            time.sleep(0.01)
        return seen.deliveries

    tried = work.send()
    queue.consumer().receive(1)  # a worker that has died
    clock.advance(31)
    first = slow.options(priority=0).send()
    report = TaskWorker(tasks, client, threads=3, batch=1, idle_exit=0).run()
    assert (first.get(timeout=0), held, report.worked, report.returned) == (1, [1], 2, 0)


@pytest.fixture
def dying(url: str, clock: ManualClock) -> Iterator[tuple[Dying, Tasks]]:
    store = Dying(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as client:
        tasks = Tasks()
        tasks.bind(client)
        yield store, tasks


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_wherever_a_worker_dies_the_result_that_was_stored_stands_and_none_is_missing(
    dying: tuple[Dying, Tasks], tasks: Tasks, clock: ManualClock, *, after: bool, fails: bool
) -> None:
    store, deadly = dying
    runs: list[str] = []

    def work() -> str:
        runs.append("ran")
        if fails:
            raise OSError(f"run {len(runs)}")
        return f"run {len(runs)}"

    ours, _ = (each.task(retry=1 if fails else 2, name="work")(work) for each in (tasks, deadly))
    for step in range(20):
        runs.clear()
        result = ours.send()
        store.calls_left, store.after = step, after
        try:
            deadly.drain()
        except Died:
            pass
        else:
            if store.calls_left is not None and store.calls_left >= 0:
                break
        store.calls_left = None
        decided = result.state in ("done", "failed")
        clock.advance(31)
        tasks.drain()
        assert result.state == ("failed" if fails else "done")
        assert len(runs) <= (1 if decided or fails else 2)
        if not fails:
            assert result.get(timeout=0) == f"run {1 if decided else len(runs)}"
        assert tasks.task_client.find(result.id) is None
    else:
        raise AssertionError("it never came to an end")
    assert step >= 3


def test_a_worker_that_stood_still_begins_no_task_that_somebody_else_may_have(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    ran: list[int] = []

    @tasks.task
    def work(number: int) -> None:
        ran.append(number)
        if len(ran) == 1:
            clock.advance(31)
            assert len(client.queue("tasks").consumer().receive(10)) == 3

    tasks.send_many([work.signature(number) for number in range(3)])
    report = tasks.drain()
    assert (len(ran), report.lease_lost) == (1, 3)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_child_that_a_task_has_forked_ends_with_the_task_and_runs_no_other(
    tasks: Tasks, leaves: bool, threads: int
) -> None:
    parent = os.getpid()

    @tasks.task
    def fork() -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later Pythons warn of threads, which are what this is about
            child = os.fork()
        if not child:
            if leaves:
                sys.exit()
            return False
        ended, until = 0, time.monotonic() + 30
        while not ended and time.monotonic() < until:
            ended, _ = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return bool(ended)

    results = tasks.send_many([fork.signature() for _ in range(3)])
    try:
        report = TaskWorker(tasks, tasks.task_client.client, threads=threads, idle_exit=0).run()
    finally:
        if os.getpid() != parent:  # without threads the child comes back here
            os._exit(0)
    assert (report.worked, report.failed, report.lease_lost) == (3, 0, 0)
    assert all(result.get(timeout=0) for result in results)


@pytest.mark.parametrize("error", [OSError("no"), shardq.DeadLetter("no"), shardq.Retry(5), shardq.Snooze(5)])
def test_a_queue_that_is_deleted_while_its_task_fails_keeps_no_other_task_from_being_settled(
    tasks: Tasks, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    gone = client.create_queue("gone", max_deliveries=1)
    begun = threading.Event()
    ended_units, both_ended = itertools.count(1), threading.Event()
    put, take = EndedUnits.put, EndedUnits.take

    def put_and_count(ended: EndedUnits, unit: Unit) -> None:
        put(ended, unit)
        if next(ended_units) == 2:
            both_ended.set()

    def take_both(ended: EndedUnits, *, wait: bool = True) -> list[Unit]:
        assert both_ended.wait(60)
        return take(ended, wait=wait)

    @tasks.task(queue="gone", retry=2)
    def fail() -> None:
        assert begun.wait(60)
        client.delete_queue("gone")
        expire_caches(gone)
        raise error

    @tasks.task(retry=1)
    def sound() -> int:
        begun.set()
        return 7

    monkeypatch.setattr(EndedUnits, "put", put_and_count)
    monkeypatch.setattr(EndedUnits, "take", take_both)
    failed, result = fail.send(), sound.send()
    worker = TaskWorker(tasks, client, threads=2, idle_exit=0)
    with pytest.raises(shardq.QueueNotFound, match="'gone'"):
        worker.run()
    assert (result.get(timeout=0), client.queue("tasks").peek()) == (7, [])
    assert failed.state == ("missing" if isinstance(error, shardq.Snooze) else "failed")


def test_modules_name_their_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    assert set(tasks_named("apps_for_tests").tasks) == {"add", "die_once", "hang_once", "wait_for_others"}
    assert tasks_named("apps_for_tests:app") is tasks_named("apps_for_tests")
    for name, message in {
        "": "name no module",
        ":app": "name no module",
        "no_such_module": "cannot be loaded: ModuleNotFoundError",
        "apps_for_tests:other": "cannot be loaded: AttributeError",
        "apps_for_tests:add": "is a Task: name what",
        "json": "names 0 apps",
    }.items():
        with pytest.raises(shardq.InvalidSetting, match=message):
            tasks_named(name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nowhere\n", "'nowhere' .in .*/broken.py, line 1.$"),
        ("\n1 / 0\n", "zero .in .*/broken.py, line 2.$"),
        (
            "class Silent(Exception):\n __str__ = None\nraise Silent",
            "loaded: Silent .in .*/broken.py, line 3.$",
        ),
    ],
)
def test_what_a_module_raises_is_told_with_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(shardq.InvalidSetting, match=told):
        tasks_named("broken:app")
    with pytest.raises(shardq.InvalidSetting, match=r"cannot be loaded: .*such as 'shop' for shop\.py"):
        tasks_named("./shop")


@pytest.mark.long
def test_a_process_whose_only_thread_hangs_is_replaced_while_further_tasks_come(url: str) -> None:
    from tests.tasks.apps_for_tests import add, app, hang_once

    with shardq.connect(url) as client, app.bound(client):
        client.create_queue("sums", visibility_timeout=2, shards=1, time_shards=1)
        add.send_many(add.signature(number, 1) for number in range(100))  # so that many are received ahead
        hanging, sent = hang_once.send(), list[Result[int]]()

        def send_another(report: PoolReport) -> None:
            if report.total.worked >= 100 and not report.restarts and len(sent) < 1_000:
                sent.append(add.send(len(sent), 1))

        pool = TaskPool(
            url, "tests.tasks.apps_for_tests", handler_timeout=5, idle_exit=8, on_progress=send_another
        )
        report = pool.run()
        assert 0 < len(sent) < 1_000
        assert (report.restarts, report.total.worked) == (1, 101 + len(sent))
        assert hanging.get(timeout=0) == 2


@pytest.mark.long
def test_the_command_runs_tasks_in_processes_and_replaces_one_that_a_task_kills(tmp_path: Path) -> None:
    from tests.tasks.apps_for_tests import add, app, die_once, wait_for_others

    url = f"sqlite:///{tmp_path}/queue.db"
    (tmp_path / "here").mkdir()
    command = [str(SHARDQ), "--url", url, "work", "--tasks", "tests.tasks.apps_for_tests", "--threads", "4"]
    with shardq.connect(url) as client:
        app.bind(client)
        client.create_queue("sums", visibility_timeout=2)
        sums = add.send_many(add.signature(number, 1) for number in range(100))
        gathered = wait_for_others.send_many(
            wait_for_others.signature(str(tmp_path / "here"), 4) for _ in range(4)
        )
        died = die_once.send(str(tmp_path / "died"))
        done = subprocess.run(
            [*command, "--processes", "1", "--idle-exit", "4", "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "died").exists()
        assert died.get(timeout=0) >= 2
        assert [result.get(timeout=0) for result in sums] == list(range(1, 101))
        assert all(result.get(timeout=0) for result in gathered)
        app.close()


@pytest.mark.long
@pytest.mark.parametrize("elsewhere", ["", "environment", "option"])
def test_the_command_works_on_the_store_that_the_app_names_unless_another_is_given(
    tmp_path: Path, elsewhere: str
) -> None:
    own, other = f"sqlite:///{tmp_path}/own.db", f"sqlite:///{tmp_path}/other.db"
    (tmp_path / "shop.py").write_text(
        f"from shardq.tasks import Tasks\n\napp = Tasks({own!r})\n\n\n@app.task\ndef double(number):\n"
        "    return 2 * number\n\n\nif __name__ == '__main__':\n    double.send(1)\n"
    )
    environment = {**os.environ, "SHARDQ_URL": other} if elsewhere == "environment" else dict(os.environ)
    if not elsewhere:
        environment.pop("SHARDQ_URL", None)
    run = partial(subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run([sys.executable, "shop.py"]).returncode == 0
    options = ["--url", other] if elsewhere == "option" else []
    done = run([str(SHARDQ), *options, "work", "--tasks", "shop", "--idle-exit", "0", "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total"]["worked"] == (0 if elsewhere == "option" else 1)
    assert not (tmp_path / "shardq.db").exists()
