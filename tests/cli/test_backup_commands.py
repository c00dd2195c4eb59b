"""``shardq backup`` and ``shardq restore``: what they print, ask and refuse."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import shardq
from shardq.base.clock import from_datetime
from shardq.testing import ManualClock
from tests.cli.conftest import Shell


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
        (["backup", "folder", "--overwrite"], 2, ["folder is not a file"]),
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


def test_doctor_says_after_a_restore_what_came_back_and_what_becomes_of_it(jobs: Shell) -> None:
    # Given a file with old and new messages, one of them in flight, and schedules that have missed occurrences
    yesterday = ManualClock(from_datetime(datetime.now(UTC) - timedelta(days=1)))
    with shardq.connect(jobs.url, clock=yesterday) as client:
        client.queue("jobs").producer().send(b"old")
        client.create_queue("reports")
        client.schedules.create("nightly", queue="reports", every=3600, catch_up="one")
        client.schedules.create("poll", queue="reports", every=3600, catch_up="none")
        client.schedules.create("paused", queue="reports", every=3600)
        client.schedules.pause("paused")
        client.schedules.create("weekly", queue="reports", every=7 * 86_400)
    jobs.ok("alter", "jobs", "--retention", "1h")
    jobs.ok("send", "jobs", "--delay", "1h", "later")
    with shardq.connect(jobs.url) as client, client.create_queue("held").consumer(name="gone") as consumer:
        client.queue("held").producer().send_many([b"a", b"b"])
        assert len(consumer.receive(2)) == 2
    jobs.ok("backup", "copy.db")
    # When it is restored
    assert "shardq doctor --restored" in jobs.ok("restore", "copy.db", "--yes").stderr
    told = json.loads(jobs("doctor", "--restored", "--json").stdout)
    found = {(each["subject"], each["name"]): each for each in told["checks"]}
    # Then the doctor counts it, and says what waits, what is dropped and what is sent late
    counted = {subject: each["value"] for (subject, name), each in found.items() if name == "messages"}
    empty = "0 ready, 0 delayed, 0 in flight, 0 acked"
    assert counted == {
        "jobs": "1 ready, 1 delayed, 0 in flight, 0 acked",
        "jobs.dead": empty,
        "held": "0 ready, 0 delayed, 2 in flight, 0 acked",
        "held.dead": empty,
        "reports": empty,
        "reports.dead": empty,
    }
    leases = found["held", "leases"]
    assert leases["value"].startswith("2 messages of 1 consumer, the last lease expires in ")
    assert (leases["ok"], leases["note"], "consumers evict" in leases["remedy"]) == (True, True, True)
    retention = found["jobs", "retention"]
    assert (retention["warning"], "--retention" in retention["remedy"]) == (True, True)
    late = {name: each["value"] for (_, name), each in found.items() if name.startswith("schedule ")}
    assert late.keys() == {"schedule nightly", "schedule poll"}
    assert "the last one is sent late" in late["schedule nightly"]
    assert "none is sent late" in late["schedule poll"]
    # And a doctor that is not asked for that says none of it
    usual = {each["name"] for each in json.loads(jobs("doctor", "--json").stdout)["checks"]}
    assert usual.isdisjoint({"messages", "leases", "retention", "schedule nightly"})


def test_the_remedies_of_a_restored_queue_work(jobs: Shell) -> None:
    with shardq.connect(jobs.url) as client, client.queue("jobs").consumer(name="gone") as consumer:
        client.queue("jobs").producer().send(b"a")
        assert consumer.receive()
    checks = json.loads(jobs("doctor", "jobs", "--restored", "--json").stdout)["checks"]
    (remedy,) = [each["remedy"] for each in checks if each["name"] == "leases"]
    (command,) = re.findall("`shardq (.*?)`", remedy)
    jobs.ok(*command.split())
    assert jobs.json("stats", "jobs")["ready"] == 1
