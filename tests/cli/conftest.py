from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from shardq.cli.main import main
from tests.processes import running
from tests.terminal import PROGRAM


class Shell:
    """Runs shardq within this process, in a folder of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(main, ["--url", self.url, *arguments], input=stdin)

    def ok(self, *arguments: str, stdin: str | bytes = "") -> Result:
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self.ok(*arguments, "--json", stdin=stdin).stdout)

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").stdout.splitlines()]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHARDQ_URL", raising=False)
    monkeypatch.delenv("SHARDQ_DEBUG", raising=False)
    return f"sqlite:///{tmp_path}/queue.db?synchronous=normal"


@pytest.fixture
def shell(url: str) -> Shell:
    return Shell(url)


@pytest.fixture
def jobs(shell: Shell) -> Shell:
    """A shell, and a queue called jobs."""
    shell.ok("create", "jobs", "--shards", "2", "--time-shards", "2", "--max-deliveries", "1")
    return shell


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a real process, which ends with the test."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ExitStack() as started:

        def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
            surroundings = {"cwd": tmp_path, "env": os.environ | {"SHARDQ_URL": url}}
            command = [PROGRAM, *arguments]
            return started.enter_context(running(command, **pipes, **surroundings, **options))

        yield start
