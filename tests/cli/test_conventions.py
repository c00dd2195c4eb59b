from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from shardq import errors
from shardq.base.texts import masked
from shardq.cli import failures
from shardq.cli.command_table import COMMANDS, SECTIONS
from shardq.cli.main import main
from shardq.cli.pools import summary
from shardq.cli.printing import many
from shardq.cli.times import coming_moment, duration, in_words, past_moment
from shardq.worker import PoolReport, WorkerReport


def test_every_command_is_in_the_help_under_a_section(shell) -> None:
    text = shell.ok("--help").stdout
    for name, entry in COMMANDS.items():
        assert entry.section in SECTIONS
        assert f"  {name} " in text
        assert entry.summary in " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_summary_of_the_table_an_example_and_a_url(shell, name: str) -> None:
    text = " ".join(shell.ok(name, "--help").stdout.split())
    assert COMMANDS[name].summary in text
    assert f"shardq {name}" in text.partition("Example:")[2]
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Group) or any(option.name == "url" for option in command.params)


def test_commands_are_loaded_only_when_they_are_called() -> None:
    for entry in COMMANDS.values():
        module = entry.target.partition(":")[0]
        assert module not in importlib.import_module("shardq.cli.main").__dict__.values()


SHOWING = "backup describe doctor get history list peek purge receive redrive remove restore send stats work"


@pytest.mark.parametrize("name", SHOWING.split())
def test_every_command_that_shows_something_takes_json(shell, name: str) -> None:
    assert "--json" in shell.ok(name, "--help").stdout


@pytest.mark.parametrize(("restarts", "text"), [(0, "worked in 2 s"), (1, "1 restart"), (2, "2 restarts")])
def test_the_summary_of_a_pool_counts_in_words(restarts: int, text: str) -> None:
    assert summary(PoolReport(WorkerReport(), 0, restarts, 2.0)).endswith(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("jobs",), "jobs at {url} with 1 process; Ctrl-C ends"),
        (
            ("jobs", "no/*", "-p", "1..2", "--threads", "3"),
            "jobs, no/* at {url} with 1 to 2 processes of 3 threads;",
        ),
    ],
)
def test_workers_tell_at_their_start_what_they_work_on_and_how_to_end_them(
    shell, options: tuple[str, ...], text: str
) -> None:
    shell.ok("create", "jobs")
    ended = shell.ok("work", *options, "--exec", "true", "--idle-exit", "0")
    assert ended.stderr.startswith(f"working on {text.format(url=masked(shell.url))}")


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("ui", "uvicorn", "service"),
        ("keys list", "starlette", "service"),
        ("metrics --once", "prometheus_client", "metrics"),
        ("spark load --help", "pyspark", "spark"),
    ],
)
def test_without_its_extra_a_command_says_what_to_install(
    tmp_path: Path, command: str, missing: str, extra: str
) -> None:
    without = f"import sys; sys.modules[{missing!r}] = None; from shardq.cli.main import main; main({command.split()})"
    done = subprocess.run(
        [sys.executable, "-c", without],
        check=False,
        env={**os.environ, "SHARDQ_URL": f"sqlite:///{tmp_path}/queue.db"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == failures.USAGE
    assert done.stderr.startswith("shardq: invalid_setting: ")
    assert done.stderr.endswith(f"{missing}: pip install 'shardq[{extra}]'\n")


def every_error() -> list[errors.ShardqError]:
    made = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        made.append(kind("some\ntext", [], []) if kind is errors.PartialSend else kind("some\ntext"))
    return made


CODES = {
    "queue_not_found": 3, "schedule_not_found": 3,
    "invalid_setting": 2, "invalid_name": 2, "invalid_message": 2, "message_too_large": 2,
    "invalid_receipt": 2, "consumer_not_found": 3, "body_not_found": 3, "store_unavailable": 4, "outcome_unknown": 4,
}  # fmt: skip


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.code)
def testevery_error_is_one_line_and_its_exit_code(shell, monkeypatch, error: errors.ShardqError) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("shardq.storage.opening.open_store", fail)
    result = shell("list")
    assert result.exit_code == CODES.get(error.code, 1)
    assert result.stderr == f"shardq: {error.code}: some text\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "shardq: interrupted: stopped by Ctrl-C\n"),
        (BrokenPipeError(), 141, ""),
        (OSError("disk"), 1, "shardq: file: disk\n"),
        (RuntimeError("a\nb"), 1, "shardq: internal: RuntimeError: a b; SHARDQ_DEBUG=1 shows where\n"),
    ],
)
def test_whatever_else_goes_wrong_is_never_a_traceback(
    shell, monkeypatch, error, code: int, line: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("shardq.storage.opening.open_store", fail)
    result = shell("list")
    assert (result.exit_code, result.stderr) == (code, line)


def test_a_bulk_send_that_stopped_ends_as_what_stopped_it() -> None:
    partial = errors.PartialSend("x", [], [])
    partial.__cause__ = errors.StoreUnavailable("away")
    assert failures.exit_code(partial) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"], ["list", "--nothing"], ["create"], ["create", "a b"], ["create", "a", "--shards", "x"],
        ["create", "a", "--shards", "0"], ["create", "a", "--retention", "soon"], ["get", "x"], ["alter", "jobs"],
        ["send", "jobs"], ["send", "jobs", "x", "--header", "y"], ["send", "jobs", "x", "--priority", "10"],
        ["ack", "jobs", "x"], ["--url", "nope://x", "list"], ["history", "jobs", "--since", "soon"],
        ["history", "jobs", "--to", "x"], ["history", "jobs", "--replay", "--limit", "1"],
        ["peek", "jobs", "--limit", "0"],
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_exit_code_2(jobs, arguments: list[str]) -> None:
    result = jobs(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("shardq: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--rate", "1e13", "--size", "1"], ["rate=10000000000000.0", "below 1e12"]),
        (["plan", "--rate", "1", "--size", "1", "--consumers", "9" * 30], ["consumers=999", "below 1e12"]),
        (["schema", "print", "--store", "x"], ["--store", "'x'", "cassandra, mongodb, postgresql or sqlite"]),
        (["subscription", "create", "t", "s", "--start", "x"], ["--start", "'x'", "latest or earliest"]),
        (["subscription", "seek", "t", "s", "--to", "x"], ["--to", "'x'", "ISO 8601"]),
        (["work", "jobs", "--exec", "true", "--weight", "jobs"], ["--weight", "'jobs'", "QUEUE=NUMBER"]),
        (["topic", "create", "t"], ["topic 't'", "exist_ok"]),
        (
            ["schedule", "create", "s", "jobs", "--every", "3", "--until", "2001-01-01"],
            ["until=2001-01-01", "later"],
        ),
    ],
    ids=lambda given: given[0],
)
def test_an_error_names_the_thing_the_value_and_the_remedy(
    jobs, arguments: list[str], words: list[str]
) -> None:
    jobs.ok("topic", "create", "t")
    jobs.ok("subscription", "create", "t", "s")
    told = jobs(*arguments).stderr
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    "command", ["ack jobs", "release jobs", "extend jobs 10", "remove", "get", "trace", "topic create"]
)
def test_an_error_does_not_repeat_a_body_that_was_given_for_a_name(jobs, command: str) -> None:
    told = jobs(*command.split(), "x" * 100_000)
    assert (told.exit_code, len(told.stderr.splitlines())) == (2, 1)
    assert len(told.stderr) < 600


@pytest.mark.parametrize(
    "name", ["describe", "delete", "peek", "receive", "stats", "pause", "redrive", "history"]
)
def test_a_queue_that_does_not_exist_is_exit_code_3(jobs, name: str) -> None:
    result = jobs(name, "nowhere")
    assert result.exit_code == 3
    assert "did you mean" not in result.stderr


@pytest.mark.parametrize("name", ["describe", "peek", "receive", "send", "stats", "pause", "history"])
def test_a_queue_that_is_mistyped_is_answered_with_the_one_that_is_meant(jobs, name: str) -> None:
    result = jobs(name, "jbos", *["x"] * (name == "send"))
    assert result.exit_code == 3
    assert result.stderr.rstrip().endswith("; did you mean 'jobs'?")


@pytest.mark.parametrize(
    ("typed", "meant"), [(["lst"], "list"), (["creat", "x"], "create"), (["schema", "prnt"], "print")]
)
def test_a_command_that_is_mistyped_is_answered_with_the_one_that_is_meant(
    shell, typed: list[str], meant: str
) -> None:
    result = shell(*typed)
    assert result.exit_code == 2
    assert f"Did you mean {meant!r}?" in result.stderr


def test_a_file_that_is_no_database_is_exit_code_4(shell, tmp_path) -> None:
    (tmp_path / "text.db").write_text("this is no database")
    assert shell("list", "--url", f"sqlite:///{tmp_path}/text.db").exit_code == 4


def test_the_url_may_come_after_the_name_of_the_command(shell, tmp_path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    shell.ok("create", "there", "--url", other)
    assert shell("list").stdout == ""
    assert shell.ok("list", "--url", other).stdout.split() == ["there", "there.dead"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("1.5", 1.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("7d", 604800),
        ("1h30m", 5400),
        ("500ms", 0.5),
    ],
)
def test_durations_are_seconds_or_have_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's time zone."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("moment", [past_moment, coming_moment])
def test_a_moment_is_in_the_users_time_zone_unless_it_says_otherwise(new_york: None, moment) -> None:
    assert moment("2026-01-31T08:00:00").isoformat() == "2026-01-31T08:00:00-05:00"
    assert moment("2026-07-31").isoformat() == "2026-07-31T00:00:00-04:00"
    assert moment("2026-01-31T08:00:00+01:00").utcoffset().total_seconds() == 3600


def test_a_duration_is_back_where_it_was_and_ahead_where_it_will_be() -> None:
    before = datetime.now(UTC)
    ago, ahead = past_moment("10m"), coming_moment("10m")
    after = datetime.now(UTC)
    assert before <= ago + timedelta(minutes=10) <= after
    assert before <= ahead - timedelta(minutes=10) <= after


@pytest.mark.parametrize("moment", [past_moment, coming_moment])
@pytest.mark.parametrize("text", ["9999999999999d", "-10", "soon", "nan", "2026-02-30"])
def test_what_is_no_moment_is_wrong_usage(moment, text: str) -> None:
    with pytest.raises(click.BadParameter):
        moment(text)


def test_numbers_agree_with_their_nouns() -> None:
    assert [many(count, "message") for count in (0, 1, 2, 3000)] == [
        "0 messages", "1 message", "2 messages", "3,000 messages",
    ]  # fmt: skip
    assert many(2, "process") == "2 processes"


def test_durations_in_words() -> None:
    assert [in_words(seconds) for seconds in (1.5, 300, 10_000, 500_000)] == [
        "1.5 s",
        "5 min",
        "2.8 h",
        "5.8 days",
    ]
