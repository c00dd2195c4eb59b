"""``shardq backup`` and ``shardq restore``: what they print, ask and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
