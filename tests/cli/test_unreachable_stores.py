"""A command whose store does not answer says so while it tries."""

from __future__ import annotations

import socket

import pytest

from shardq.cli import failures
from tests.cli.conftest import Shell


@pytest.mark.long
@pytest.mark.parametrize("command", [["list"], ["stats", "jobs"]])
def test_a_store_that_is_silent_is_told_of_before_the_command_gives_up(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(failures, "PING_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        shell = Shell(f"mongodb://127.0.0.1:{port}/db?serverSelectionTimeoutMS=500")
        result = shell(*command)
    told, *_, failed = result.stderr.splitlines()
    assert told.startswith("shardq: still trying: the store did not answer within 0.1 seconds")
    assert failed.startswith("shardq: store_unavailable: ")
    assert result.exit_code == 4


def test_a_store_that_answers_is_not_told_of(jobs: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "QUIET_SECONDS", 0.0)
    assert jobs.ok("list").stderr == ""
