"""A command that reads an SQLite file never succeeds when that could be seen to be damaged."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

import shardq
from shardq.cli.command import ReadCommand
from shardq.cli.main import main
from shardq.pipelines import Pipeline
from tests.cli.conftest import Shell

ID = "jobs:0:0:0197c8a2b4d07abc8123456789abcdef:0"
PIPELINE = Pipeline("p").link("jobs", "jobs.dead", print).output("jobs.dead")
READING = {
    "list": [],
    "describe": ["jobs"],
    "schedule list": [],
    "schedule show": ["nightly"],
    "semaphore": ["smtp"],
    "topic list": [],
    "subscription list": ["shop"],
    "task list": ["jobs"],
    "task show": [ID],
    "pipeline show": [f"{__name__}:PIPELINE", "--depths"],
    "history": ["jobs"],
    "peek": ["jobs"],
    "get": [ID],
    "trace": [ID],
    "consumers list": [],
    "stats": ["jobs"],
    "doctor": [],
}
"""Each command that reads, with what it needs."""
KILLED = """
import os, signal, sys, shardq
producer = shardq.connect(sys.argv[1]).queue("jobs").producer()
for number in range(200):
    producer.send(b"%d" % number + b"x" * 500)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def file(jobs: Shell, tmp_path: Path) -> Path:
    """A file that nobody is connected to, with something in most of its tables."""
    jobs.ok("alter", "jobs", "--history-retention", "1h")
    jobs.ok("schedule", "create", "nightly", "jobs", "--every", "1d")
    jobs.ok("semaphore", "smtp", "--permits", "2")
    jobs.ok("topic", "create", "shop")
    jobs.ok("send", "jobs", *(f"{number}" for number in range(20)))
    jobs.ok("send", "jobs", "keyed", "--dedupe-key", "d")
    jobs.ok("receive", "jobs", "--limit", "3")
    return tmp_path / "queue.db"


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield " ".join((*words, name)), command


def root_of(file: Path, table: str) -> int:
    with closing(sqlite3.connect(file)) as sql:
        found = sql.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return int(found[0])


def overwrite(file: Path, page: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(8192 * (page - 1))
        opened.write(b"\xff" * 8192)


def is_whole(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(file)) as sql:
            return sql.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def test_every_command_that_only_reads_is_tried_here() -> None:
    found = {name for name, command in commands(main) if isinstance(command, ReadCommand)}
    assert found == set(READING)


@pytest.mark.parametrize("command", READING)
def test_damage_of_what_a_command_does_not_read_makes_it_fail(file: Path, jobs: Shell, command: str) -> None:
    overwrite(file, root_of(file, "moved_by_bundle"))
    told = jobs(*command.split(), *READING[command])
    assert told.exit_code == (1 if command == "doctor" else 4)
    assert "`shardq restore BACKUP`" in told.output
    assert "Traceback" not in told.output


def test_no_page_can_be_overwritten_unnoticed_unless_it_holds_nothing_but_bodies(
    file: Path, jobs: Shell
) -> None:
    before = file.read_bytes()
    unnoticed = 0
    for page in range(1, len(before) // 8192 + 1):
        file.write_bytes(before)
        overwrite(file, page)
        if is_whole(file):  # nothing in the file tells what stood there
            unnoticed += 1
            continue
        for command in ("stats", "list", "doctor"):
            assert jobs(command, *READING[command]).exit_code in (1, 4), (page, command)
    assert unnoticed < page / 4, (unnoticed, page)


def cut(file: Path) -> None:
    os.truncate(file, 8192 * 5)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def put_under_the_log_of_another(file: Path) -> None:
    """Copy an older state of the file over it, as restores by hand do."""
    older = file.with_name("older.db")
    shutil.copy(file, older)
    subprocess.run([sys.executable, "-c", KILLED, f"sqlite:///{file}"], check=False)
    assert file.with_name("queue.db-wal").stat().st_size > 0
    with older.open("r+b") as opened:  # any file of another history
        opened.truncate(8192 * 12)
    older.replace(file)


def lose_an_entry_of_an_index(file: Path) -> None:
    """Damage that leaves each page in order: what a disk does that loses a write."""
    page = root_of(file, "slice_by_due")
    before = file.read_bytes()[8192 * (page - 1) : 8192 * page]
    with closing(sqlite3.connect(file)) as sql:
        sql.execute("DELETE FROM slice")
        sql.commit()
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with file.open("r+b") as opened:
        opened.seek(8192 * (page - 1))
        opened.write(before)


def forget_the_schema(file: Path) -> None:
    with closing(sqlite3.connect(file)) as sql:
        sql.execute("PRAGMA user_version = 0")


@pytest.mark.parametrize(
    "damage", [cut, empty, put_under_the_log_of_another, lose_an_entry_of_an_index, forget_the_schema]
)
def test_no_kind_of_damage_is_a_success(file: Path, jobs: Shell, damage: Callable[[Path], None]) -> None:
    damage(file)
    for command, words in READING.items():
        told = jobs(*command.split(), *words)
        assert told.exit_code in (1, 4), (command, told.output)


def test_what_can_be_read_of_a_damaged_file_is_printed(file: Path, jobs: Shell) -> None:
    overwrite(file, root_of(file, "moved_by_bundle"))
    told = jobs("peek", "jobs", "--limit", "18")
    assert (told.exit_code, told.stdout.count("\n")) == (4, 18)
    assert "is damaged" in told.stderr


@pytest.mark.parametrize("options", [(), ("--header", "kind=x")], ids=["all", "selected"])
def test_peek_shows_the_messages_of_each_shard_up_to_the_first_unreadable_one(
    jobs: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Above the size that is checked, too: nothing but the peek notices the damage there."""
    file = tmp_path / "queue.db"
    with shardq.connect(jobs.url) as client:
        producer = client.queue("jobs").producer()
        for _ in range(300):
            producer.send(b"x" * 300, headers={"kind": "x"})
    command = ("peek", "jobs", "--limit", "1000000", "--json", *options)
    before = [each["id"] for each in jobs.lines(*command)]
    monkeypatch.setattr("shardq.cli.command.CHECKED_BYTES", 0)
    assert len(before) == 300
    whole, left_out = file.read_bytes(), 0
    for page in range(len(whole) // 8192 - 3, len(whole) // 8192 + 1):
        file.write_bytes(whole)
        overwrite(file, page)
        told = jobs(*command)
        shown = [json.loads(line)["id"] for line in told.stdout.splitlines()]
        errors = [json.loads(line) for line in told.stderr.splitlines()]
        assert (told.exit_code, {each["code"] for each in errors}) == (4, {"store_unavailable"})
        assert 0 < len(shown) < 300
        assert [each for each in before if each in set(shown)] == shown
        lost = {each.rpartition(":")[0].rpartition(":")[0] for each in set(before) - set(shown)}
        assert {each["error"].split()[1] for each in errors} == lost
        left_out += len(lost)
    assert left_out > 0


def test_something_that_is_not_found_in_a_damaged_file_is_not_said_to_be_missing(
    file: Path, jobs: Shell
) -> None:
    assert jobs("stats", "nothing").exit_code == 3
    overwrite(file, root_of(file, "moved_by_bundle"))
    told = jobs("stats", "nothing")
    assert told.exit_code == 4
    assert "is damaged" in told.stderr


def test_a_large_file_is_checked_by_doctor_alone(
    file: Path, jobs: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrite(file, root_of(file, "moved_by_bundle"))
    monkeypatch.setattr("shardq.cli.command.CHECKED_BYTES", file.stat().st_size - 1)
    jobs.ok("stats", "jobs")
    assert jobs("doctor").exit_code == 1
    monkeypatch.setattr("shardq.cli.command.CHECKED_BYTES", file.stat().st_size)
    assert jobs("stats", "jobs").exit_code == 4


@pytest.mark.parametrize(
    "table",
    [
        "mine (x CHECK (known(x)))",
        "mine (x COLLATE known UNIQUE)",
        "mine (x); CREATE INDEX i ON mine (known(x))",
    ],
)
def test_a_function_of_the_application_is_no_damage(file: Path, jobs: Shell, table: str) -> None:
    with closing(sqlite3.connect(file)) as sql:
        sql.create_function("known", 1, lambda _: True, deterministic=True)
        sql.create_collation("known", lambda one, other: (one > other) - (one < other))
        sql.executescript(f"CREATE TABLE {table}; INSERT INTO mine VALUES ('a'), ('b')")
    jobs.ok("stats", "jobs")
    found = {check["name"]: check for check in json.loads(jobs("doctor", "--json").stdout)["checks"]}
    assert found["integrity"]["value"] == "ok"
    jobs.ok("backup", "copy.db")
    overwrite(file, root_of(file, "moved_by_bundle"))
    assert jobs("stats", "jobs").exit_code == 4
    assert jobs("doctor").exit_code == 1
    assert jobs("backup", "another.db").exit_code == 4
