"""A shell completes the names of queues, on the store that the command names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from shardq.cli.main import main
from tests.terminal import PROGRAM


def completed(*words: str) -> list[str]:
    *complete, incomplete = words
    shell = ShellComplete(main, {}, "shardq", "_SHARDQ_COMPLETE")
    return [each.value for each in shell.get_completions(complete, incomplete)]


@pytest.mark.parametrize(
    "command",
    [
        "peek", "send", "receive", "stats", "describe", "alter", "pause", "purge", "redrive", "doctor", "list",
        "work mail", "sweep mail", "consumers list", "consumers evict x --queue", "history x --to",
        "schedule create nightly", "schedule list", "task list", "spark drain", "expire",
    ],
)  # fmt: skip
def test_the_names_of_queues_are_completed(jobs, command: str) -> None:
    words = [*command.split(), "jo"]
    assert completed("--url", jobs.url, *words) == ["jobs", "jobs.dead"]
    assert completed(*command.split(), "--url", jobs.url, "jo") == ["jobs", "jobs.dead"] or "--" in command


def test_the_store_may_be_that_of_the_environment(jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("peek", "jo") == []
    monkeypatch.setenv("SHARDQ_URL", jobs.url)
    assert completed("peek", "jobs.") == ["jobs.dead"]
    assert completed("peek", "x") == []
    assert completed("peek", "~") == []


def test_queues_of_shardq_are_completed_only_by_their_own_beginning(jobs) -> None:
    jobs.ok("semaphore", "smtp", "--permits", "1")
    assert completed("--url", jobs.url, "delete", "") == ["jobs", "jobs.dead"]
    assert completed("--url", jobs.url, "delete", "_shardq/p") == ["_shardq/permits/smtp"]


@pytest.mark.parametrize("url", ["sqlite:///", "nope://x", "postgresql://127.0.0.1:1/x", "memory://", "x"])
def test_a_store_that_cannot_be_read_gives_no_names_and_no_errors(url: str, capfd) -> None:
    assert completed("--url", url, "peek", "") == []
    assert capfd.readouterr() == ("", "")


def test_completing_makes_no_file(tmp_path) -> None:
    assert completed("--url", f"sqlite:///{tmp_path}/none.db", "peek", "") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "found"),
    [("sp", ["spark"]), ("spark dr", []), ("se", ["semaphore", "send", "serve"]), ("sned x", [])],
)
def test_commands_are_completed_without_their_extras_and_without_errors(words: str, found: list[str]) -> None:
    missing = "import sys; sys.modules['pyspark'] = sys.modules['uvicorn'] = None; "
    run = "from shardq.cli.main import main; main(prog_name='shardq')"
    words = f"shardq {words}"
    given = {"_SHARDQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", missing + run],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [f"plain,{name}" for name in found]


def test_the_commands_of_help_are_completed() -> None:
    assert completed("help", "des") == ["describe"]


def test_the_script_of_a_shell_asks_the_program(jobs) -> None:
    assert "_SHARDQ_COMPLETE=bash_complete" in jobs.ok("completion", "bash").stdout
    words = {"COMP_WORDS": f"shardq --url {jobs.url} peek jobs.", "COMP_CWORD": "4"}
    asked = os.environ | {"_SHARDQ_COMPLETE": "bash_complete"} | words
    assert (
        subprocess.run([PROGRAM], env=asked, capture_output=True, text=True, check=True).stdout
        == "plain,jobs.dead\n"
    )
