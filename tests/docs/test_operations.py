"""The commands of docs/operations.md, typed when they are needed: under load, and after processes were killed."""

from __future__ import annotations

import os
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
from tests.docs.pages import DOCS, blocks, blocks_in
from tests.processes import running
from tests.terminal import PROGRAM

PAGE = DOCS / "operations.md"

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
    lines = [line for block in blocks_in(PAGE, "console") for line in block.splitlines()]
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


def test_the_commands_of_the_page_bring_back_the_queue_after_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHARDQ_URL", raising=False)
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


def counts(url: str, name: str) -> dict[bytes, int]:
    """How often each body is in a queue."""
    with shardq.connect(url) as client:
        found = [message.body for message in client.queue(name).peek(1_000_000)]
    return {body: found.count(body) for body in found}


def test_the_move_to_another_store_can_be_repeated_from_any_line(tmp_path: Path) -> None:
    (block,) = (text for _, text in blocks(PAGE) if "pause orders --sends" in text)
    lines = block.splitlines()
    source, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("source", "other"))
    surroundings = os.environ | {
        "PATH": f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}", "SHARDQ_URL": source, "OTHER": other,
    }  # fmt: skip

    def type_first(number: int) -> None:
        script = "set -e\n" + "\n".join(lines[:number])
        subprocess.run(["sh", "-c", script], cwd=tmp_path, env=surroundings, check=True, capture_output=True)

    with shardq.connect(source) as client:
        producer = client.create_queue("orders").producer()
        producer.send_many([b"%d" % number for number in range(20)], group="g")
        producer.send(b"keyed", dedupe_key="k")
        producer.send(b"unique", unique_key="u")
    sent = counts(source, "orders")
    assert set(sent.values()) == {1}
    (sending,) = (number for number, line in enumerate(lines, 1) if " send " in line)
    for number in (sending, len(lines)):
        type_first(number)
        assert counts(other, "orders") == sent
