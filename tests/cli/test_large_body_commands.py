"""Large bodies on the command line."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

SIZE = 1_500_000


def test_a_file_is_sent_looked_at_and_received_whole(jobs, tmp_path: Path) -> None:
    content = os.urandom(SIZE)
    (tmp_path / "film").write_bytes(content)
    sent = jobs.json("send", "jobs", "--large", "film", "--priority", "2", "--header", "kind=film")
    (identity,) = sent.pop("ids")
    assert sent == {"queue": "jobs", "sent": 1, "bytes": SIZE}

    (shown,) = jobs.lines("peek", "jobs")
    assert (shown["large_bytes"], shown["priority"], shown["headers"]) == (SIZE, 2, {"kind": "film"})
    assert "body" not in shown
    assert jobs.json("get", identity) == shown
    assert "(1,500,000 bytes)" in jobs.ok("peek", "jobs").stdout
    assert jobs.ok("get", identity).stdout_bytes == content + b"\n"
    jobs.ok("get", identity, "--output", "looked at")
    assert (tmp_path / "looked at").read_bytes() == content

    jobs.ok("receive", "jobs", "--output", "received")
    assert (tmp_path / "received").read_bytes() == content
    assert jobs("get", identity).exit_code == 3
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".part") == []


def test_what_comes_through_a_pipe_is_sent_whole_and_its_size_is_told(jobs, tmp_path: Path) -> None:
    pipe, film = tmp_path / "pipe", b"frame\n" * 500_000
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(film,))
    writer.start()
    assert jobs.json("send", "jobs", "--large", str(pipe))["bytes"] == len(film)
    writer.join()
    jobs.ok("receive", "jobs", "--output", "copy")
    assert (tmp_path / "copy").read_bytes() == film


def test_a_small_body_is_written_to_a_file_too(jobs, tmp_path: Path) -> None:
    jobs.ok("send", "jobs", "small")
    jobs.ok("receive", "jobs", "--pop", "--output", "received")
    assert (tmp_path / "received").read_bytes() == b"small"


def test_wrong_use_is_told_in_one_line(jobs, tmp_path: Path) -> None:
    (tmp_path / "film").write_bytes(b"film")
    for arguments in [
        ["send", "jobs", "--large", "other"],
        ["send", "jobs", "--large", "film", "body"],
        ["send", "jobs", "--large", "film", "--jsonl"],
        ["receive", "jobs", "--output", "x", "--limit", "2"],
        ["receive", "jobs", "--output", "x", "--json"],
        ["get", "jobs", "--output", "."],
    ]:
        told = jobs(*arguments)
        assert told.exit_code == 2, arguments
        assert len(told.stderr.splitlines()) == 1, told.stderr
    assert jobs.json("stats", "jobs")["ready"] == 0


@pytest.fixture
def film(jobs, tmp_path: Path) -> str:
    """The id of a message with a large body, behind one with a small one."""
    (tmp_path / "film").write_bytes(b"frame\n" * 3)
    jobs.ok("send", "jobs", "small", "--priority", "0")
    return jobs.ok("send", "jobs", "--large", "film").stdout.strip()


@pytest.mark.parametrize("options", [(), ("--ack",), ("--receipts",)])
def test_a_large_body_that_json_does_not_show_is_not_acked(
    jobs, tmp_path: Path, film: str, options: tuple[str, ...]
) -> None:
    # When both are to be acked after they are printed, and one would not be printed
    refused = jobs("receive", "jobs", "--json", "--limit", "9", *options)
    # Then none of their batch is printed or acked, and what helps is said
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert json.loads(refused.stderr)["code"] == "invalid_message"
    assert all(word in refused.stderr for word in (film, "18 bytes", "--output", "--no-ack"))
    left = jobs.json("stats", "jobs")
    assert (left["ready"], left["in_flight"]) == (2, 0)
    assert jobs.json("get", film)["deliveries"] == 0
    assert jobs.ok("receive", "jobs").stdout == "small\n"
    jobs.ok("receive", "jobs", "--output", "copy")
    assert (tmp_path / "copy").read_bytes() == b"frame\n" * 3


def test_json_shows_messages_with_large_bodies_that_are_not_acked(jobs, film: str) -> None:
    shown = jobs.lines("receive", "jobs", "--no-ack", "--limit", "9")
    assert {message["id"]: message.get("large_bytes") for message in shown}[film] == 18
    assert jobs.json("stats", "jobs")["in_flight"] == 2


def test_who_pops_a_large_body_as_json_is_told_that_it_is_not_shown(jobs, film: str) -> None:
    told = jobs.ok("receive", "jobs", "--json", "--pop", "--limit", "9")
    assert [json.loads(line).get("large_bytes") for line in told.stdout.splitlines()].count(18) == 1
    assert told.stderr.splitlines() == [
        f"the body of message {film} (18 bytes) is not printed with --json, and the message is acked"
    ]


def test_a_large_body_is_one_line_behind_its_receipt(jobs, film: str) -> None:
    lines = jobs.ok("receive", "jobs", "--no-ack", "--receipts", "--limit", "9").stdout
    assert sorted(line.partition("\t")[2] for line in lines.splitlines()) == [r"frame\n" * 3, "small"]
    assert jobs.ok("ack", "jobs", "-", stdin=lines).stderr == "2 messages acked\n"
