"""``memory://``: queues that live as long as those who use them, in one process."""

from __future__ import annotations

import gc
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

import shardq
from shardq.base.clock import Clock
from shardq.cli.main import main
from shardq.spark.options import BrowseOptions, parse
from shardq.storage.opening import open_store
from shardq.storage.sqlite.memory import MemoryStore
from shardq.tasks import TaskPool
from shardq.testing import ManualClock
from shardq.testing.conformance import StoreConformance
from shardq.testing.conformance.clients import ClientContract
from shardq.testing.conformance.dropping import DropContract
from shardq.worker import WorkerPool
from tests.conformance.test_sqlite import SqliteHarness


class MemoryHarness(SqliteHarness):
    """Two names of this process: one with a schema, and one that is empty."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.name = secrets.token_hex(4)
        self.anchor = self._named(self.name)
        self.path = _file(self.anchor)

    def open(self) -> MemoryStore:
        return self._named(self.name)

    def open_empty(self) -> MemoryStore:
        store = self._named("")
        self.empty = _file(store)
        return store

    def _named(self, name: str) -> MemoryStore:
        return cast("MemoryStore", open_store(f"memory://{name}", cast("Clock", self.clock)))


def _file(store: object) -> Path:
    return cast("MemoryStore", store).session.path


@pytest.fixture(scope="module")
def harness() -> MemoryHarness:
    return MemoryHarness()


class TestMemory(ClientContract, DropContract):
    """Contracts of clients: forks, closing, schemas. What else there is, is that of SQLite."""


@pytest.mark.long
class TestAllOfMemory(StoreConformance):
    """Every contract."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of such stores are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_each_client_without_a_name_has_queues_of_its_own(folder: Path) -> None:
    with shardq.connect("memory://") as one, shardq.connect("memory://") as other:
        one.create_queue("orders").producer().send(b"x")
        assert (one.queues(), other.queues()) == (("orders", "orders.dead"), ())
    assert list(folder.iterdir()) == []


def test_clients_of_one_name_share_queues_until_the_last_one_is_closed(folder: Path) -> None:
    with shardq.connect("memory://shop") as one, shardq.connect("memory://shop") as other:
        one.create_queue("orders").producer().send(b"x")
        one.close()
        one.close()
        with shardq.connect("memory://shop") as third:
            assert third.queue("orders").consumer().receive(1).bodies == [b"x"]
        assert other.exists("orders")
        assert not shardq.connect("memory://another").exists("orders")
    with shardq.connect("memory://shop") as later:
        assert later.queues() == ()
    gc.collect()
    assert list(folder.iterdir()) == []


def test_a_client_that_was_forgotten_leaves_nothing(folder: Path) -> None:
    shardq.connect("memory://").create_queue("orders")
    gc.collect()
    assert list(folder.iterdir()) == []


def test_threads_that_open_and_close_one_name_meet_in_one_store_or_in_a_new_one(folder: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                with shardq.connect("memory://shop") as client:
                    queue = client.create_queue(f"own-{number}", exist_ok=True)
                    queue.producer().send(b"x")
                    assert queue.counts().ready >= 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gc.collect()
    assert list(folder.iterdir()) == []


def test_the_end_of_the_process_removes_what_is_open_and_that_of_a_forked_child_does_not(
    tmp_path: Path,
) -> None:
    program = """
import os, sys, shardq
client = shardq.connect("memory://shop")
queue = client.create_queue("orders")
child = os.fork()
if not child:
    queue.producer().send(b"from the child")
    sys.exit(0)
os.waitpid(child, 0)
assert shardq.connect("memory://shop").queue("orders").consumer().receive(1).bodies == [b"from the child"]
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory:///shop", "a name that cannot be used"),
        ("memory://user@shop", "a name that cannot be used"),
        ("memory://shop?synchronous=full", "memory:// takes none"),
    ],
)
def test_urls_that_mean_nothing_are_refused(url: str, why: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match=why):
        shardq.connect(url)


def test_nothing_is_out_of_order_and_there_are_no_transactions_of_the_application() -> None:
    with shardq.connect("memory://") as client:
        client.ping()
        assert [(finding.name, finding.ok) for finding in client.diagnose()] == [("memory", True)]
        with pytest.raises(shardq.UnsupportedByStore):
            client.transaction(connection=None)


def test_what_has_processes_of_its_own_refuses_it() -> None:
    for start in (
        lambda: WorkerPool("memory://shop", "orders", print),
        lambda: TaskPool("memory://shop", "shop"),
        lambda: parse(BrowseOptions, {"url": "memory://shop", "queue": "orders"}),
    ):
        with pytest.raises(shardq.InvalidSetting, match="'memory://' is of one process, and the workers of"):
            start()


@pytest.mark.parametrize("given", ["client", "shop.db"])
def test_a_pool_says_that_it_takes_a_url(given: str) -> None:
    """A Worker takes queues that are opened, so a client is what comes to mind here."""
    with (
        shardq.connect("memory://") as client,
        pytest.raises(shardq.InvalidSetting, match="is not a URL of a store"),
    ):
        WorkerPool(client if given == "client" else given, "orders", print)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["list", "work orders --exec true", "bench", "doctor"])
def test_the_command_line_refuses_it(command: str) -> None:
    done = CliRunner().invoke(main, ["--url", "memory://", *command.split()])
    assert isinstance(done.exception, shardq.InvalidSetting) or done.exit_code == 2, done.output
    assert "'memory://' is of one process, and" in str(done.exception) + done.output


def test_tasks_run_in_it() -> None:
    from shardq.tasks import Tasks

    tasks = Tasks("memory://")

    @tasks.task
    def double(number: int) -> int:
        return 2 * number

    result = double.send(4)
    assert tasks.drain().worked == 1
    assert result.get(timeout=0) == 8
    tasks.close()
