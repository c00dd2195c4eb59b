"""With ``--json`` an error is a line of JSON on stderr, for programs that have to know what failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardq import errors
from tests.cli.test_conventions import every_error


def error_of(shell, *arguments: str, stdin: str = "") -> dict[str, Any]:
    result = shell(*arguments, stdin=stdin)
    *_, line = result.stderr.splitlines()
    found = json.loads(line)
    assert found["exit_code"] == result.exit_code != 0
    return found


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.code)
def testevery_error_is_an_object_with_its_code(shell, monkeypatch, error: errors.ShardqError) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("shardq.storage.opening.open_store", fail)
    found = error_of(shell, "list", "--json")
    assert (found["code"], found["error"], found["retryable"]) == (error.code, "some text", error.retryable)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["describe", "jbos", "--json"], "queue_not_found", "did you mean 'jobs'?"),
        (["list", "--json", "--nope"], "usage", "--nope"),
        (["nope", "--json"], "usage", "nope"),
        (["topic", "--json"], "usage", "--json"),
        (["list", "--json", "--url", ""], "invalid_setting", "empty"),
        (["send", "jobs", "x", "--json", "--priority", "10"], "invalid_message", "priority=10"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_also_errors_of_the_usage_are_objects(jobs, arguments: list[str], code: str, words: str) -> None:
    found = error_of(jobs, *arguments)
    assert found["code"] == code
    assert words in found["error"]


def test_the_missing_file_of_a_store_is_an_object(shell) -> None:
    assert error_of(shell, "list", "--json")["code"] == "store_not_found"


def test_an_interrupt_is_an_object(shell, monkeypatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shardq.storage.opening.open_store", interrupt)
    assert error_of(shell, "list", "--json") == {
        "code": "interrupted", "error": "stopped by Ctrl-C", "exit_code": 130, "retryable": False,
    }  # fmt: skip


def test_an_argument_is_no_option(jobs) -> None:
    told = jobs("peek", "--", "--json").stderr
    assert told.startswith("shardq: ")


def test_a_partial_send_has_its_rest_on_stdout_and_its_error_on_stderr(jobs) -> None:
    result = jobs("send", "jobs", "--jsonl", "-", "--json", stdin='{"body":"a"}\nx\n')
    assert result.exit_code == json.loads(result.stderr.splitlines()[-1])["exit_code"] == 2
    assert json.loads(result.stdout)["unsent"] == [2]
