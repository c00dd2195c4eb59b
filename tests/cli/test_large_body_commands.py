"""Large bodies on the command line."""

from __future__ import annotations

import os
from pathlib import Path

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
