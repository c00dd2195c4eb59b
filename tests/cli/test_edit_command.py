"""`shardq edit`: a message that waits gets another body, headers, priority or due time."""

from __future__ import annotations

from pathlib import Path

import shardq
from tests.cli.conftest import Shell


def test_what_is_given_changes_and_the_new_id_is_printed(jobs: Shell) -> None:
    sent = jobs.json("send", "jobs", "old", "--header", "tenant=acme", "--priority", "3")["ids"][0]
    changed = jobs.ok("edit", sent, "--body", "new", "--priority", "0", "--due", "1h").stdout.strip()
    message = jobs.json("get", changed)
    assert (message["body"], message["priority"], message["headers"], message["state"]) == (
        "new",
        0,
        {"tenant": "acme"},
        "delayed",
    )
    again = jobs.json("edit", changed, "--no-headers", "--delay", "0")["id"]
    message = jobs.json("get", again)
    assert (message["headers"], message["state"]) == ({}, "ready")


def test_the_body_can_come_from_a_file_or_stdin(jobs: Shell, tmp_path: Path) -> None:
    sent = jobs.json("send", "jobs", "old")["ids"][0]
    (tmp_path / "body").write_bytes(b"from\na file")
    changed = jobs.ok("edit", sent, "--body-file", str(tmp_path / "body")).stdout.strip()
    assert jobs.json("get", changed)["body"] == "from\na file"
    changed = jobs.ok("edit", changed, "--body-file", "-", stdin="from stdin").stdout.strip()
    assert jobs.json("get", changed)["body"] == "from stdin"


def test_a_message_that_does_not_wait_is_refused(jobs: Shell) -> None:
    sent = jobs.json("send", "jobs", "old")["ids"][0]
    assert jobs("edit", sent).exit_code == 2
    assert jobs("edit", sent, "--body", "a", "--body-file", "-").exit_code == 2
    with shardq.connect(jobs.url) as client, client.queue("jobs").consumer() as consumer:
        consumer.receive()
        refused = jobs("edit", sent, "--body", "new")
        assert refused.exit_code == 1
        assert "message_not_pending" in refused.stderr
