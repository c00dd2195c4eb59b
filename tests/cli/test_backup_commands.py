"""``shardq backup`` and ``shardq restore``, as docs/operations.md has them: under load, and with kills in between."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import shardq
from tests.cli.conftest import Shell
from tests.docs.pages import DOCS, blocks_in
from tests.processes import running
from tests.terminal import PROGRAM

SENDER = """
import itertools, shardq
producer = shardq.connect("sqlite:///shardq.db").queue("orders").producer()
for number in itertools.count():
    producer.send(b"%d " % number + b"x" * 2000)
    if number == 20:
        print("under way", flush=True)
"""


def page_command(name: str) -> list[str]:
    """The one command of the page of that name, as its reader types it."""
    lines = [line for block in blocks_in(DOCS / "operations.md", "console") for line in block.splitlines()]
    (line,) = (line for line in lines if line.startswith(f"$ shardq {name} "))
    return [PROGRAM, *shlex.split(line)[2:]]


def numbers(folder: Path) -> list[int]:
    """The messages of the queue of a file that is whole."""
    with closing(sqlite3.connect(folder / "shardq.db")) as sql:
        assert sql.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with shardq.connect(f"sqlite:///{folder}/shardq.db") as client:
        return sorted(int(message.body.split()[0]) for message in client.queue("orders").peek(1_000_000))


def wait_until(come: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not come():
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.usefixtures("url")
def test_the_commands_of_the_page_bring_back_the_queue_after_processes_are_killed(tmp_path: Path) -> None:
    back_up, restore = page_command("backup"), page_command("restore")
    file, log, part = (tmp_path / f"shardq.db{ending}" for ending in ("", "-wal", ".shardq-part"))
    with shardq.connect(f"sqlite:///{file}") as client:
        client.create_queue("orders")
        client.create_queue("archive").producer().send_many([bytes(20_000)] * 500)
    pipes: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running([sys.executable, "-c", SENDER], **pipes) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline()
        subprocess.run(back_up, cwd=tmp_path, check=True, capture_output=True, timeout=60)
        assert sender.poll() is None
        told = subprocess.run(
            [*restore, "--url", "sqlite:///shardq.db?busy_timeout=0.1"], **pipes, check=False
        )
        assert (told.returncode, b"is in use" in told.stderr) == (4, True)
        sender.kill()
        sender.wait()
    assert log.stat().st_size > 0
    with running(restore, **pipes) as killed:
        wait_until(lambda: part.exists() or killed.poll() is not None)
        killed.kill()
        killed.wait()
    found = numbers(tmp_path)
    assert found == list(range(len(found)))
    with suppress(subprocess.TimeoutExpired):  # another one leaves its log, too
        subprocess.run(
            [sys.executable, "-c", SENDER], cwd=tmp_path, capture_output=True, check=False, timeout=1
        )
    subprocess.run(restore, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    restored = numbers(tmp_path)
    assert 20 < len(restored) <= len(found)
    assert restored == list(range(len(restored)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "shardq.db"]


def test_what_is_saved_is_printed_as_json(jobs: Shell, tmp_path: Path) -> None:
    jobs.ok("send", "jobs", "a")
    saved = jobs.json("backup", "copy.db")
    size = (tmp_path / "copy.db").stat().st_size
    assert saved == {"path": str(tmp_path / "copy.db"), "bytes": size, "schema": 6, "queues": 2}
    jobs.ok("send", "jobs", "b")
    restored = jobs.json("restore", "copy.db", "--yes")
    assert restored == saved | {"path": str(tmp_path / "queue.db")}
    assert [message["body"] for message in jobs.lines("peek", "jobs")] == ["a"]


def test_a_file_is_overwritten_when_that_is_asked_for(jobs: Shell, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    told = jobs("backup", "copy.db")
    assert (told.exit_code, told.stderr.count("\n")) == (2, 1)
    assert all(word in told.stderr for word in (str(tmp_path / "copy.db"), "exists", "--overwrite"))
    assert (tmp_path / "copy.db").read_text() == "mine"
    told = jobs.ok("backup", "copy.db", "--overwrite")
    assert "2 queues" in told.stderr
    assert jobs.ok("list", "--url", f"sqlite:///{tmp_path}/copy.db").stdout == "jobs\njobs.dead\n"


def test_a_restore_asks_first(jobs: Shell) -> None:
    jobs.ok("backup", "copy.db")
    jobs.ok("send", "jobs", "a")
    told = jobs("restore", "copy.db", stdin="n\n")
    assert told.exit_code == 1
    assert "by those of copy.db?" in told.stderr
    assert len(jobs.lines("peek", "jobs")) == 1
    jobs.ok("restore", "copy.db", stdin="y\n")
    assert jobs.lines("peek", "jobs") == []


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["backup", "nowhere/copy.db"], 2, ["nowhere", "make it first"]),
        (["backup", "queue.db"], 2, ["queue.db", "another path"]),
        (["backup", "queue.db-wal", "--overwrite"], 2, ["queue.db-wal", "another path"]),
        (["backup", "folder", "--overwrite"], 2, ["folder is no file"]),
        (["backup", "x", "--url", "sqlite:///none.db"], 3, ["none.db does not exist"]),
        (["restore", "none.db", "--yes"], 2, ["none.db does not exist"]),
        (["restore", "text.txt", "--yes"], 4, ["text.txt is not a SQLite database"]),
        (["restore", "folder", "--yes"], 2, ["folder does not exist"]),
        (["backup", "x", "--url", "cassandra://localhost/shop"], 1, ["nodetool snapshot"]),
        (["restore", "x", "--url", "mongodb://localhost/shop"], 1, ["mongodump --oplog", "mongorestore"]),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else str(given),
)
def test_what_cannot_be_saved_or_restored_is_one_line_with_the_remedy(
    jobs: Shell, tmp_path: Path, words: list[str], code: int, told: list[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.txt").write_text("no database")
    before = (tmp_path / "queue.db").read_bytes()
    done = jobs(*words)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert [word for word in told if word not in done.stderr] == []
    assert (tmp_path / "queue.db").read_bytes() == before


def test_a_file_that_is_damaged_is_an_error_that_names_the_restore(jobs: Shell, tmp_path: Path) -> None:
    jobs.ok("backup", "copy.db")
    with (tmp_path / "queue.db").open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 300_000)
    for command in (["stats", "jobs"], ["doctor"]):
        told = jobs(*command)
        assert told.exit_code in (1, 4)
        assert "`shardq restore BACKUP`" in told.output
    checks = json.loads(jobs("doctor", "--json").stdout)["checks"]
    assert [check["ok"] for check in checks if check["name"] == "integrity"] == [False]
    jobs.ok("restore", "copy.db", "--yes")
    jobs.ok("stats", "jobs")
