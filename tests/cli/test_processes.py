"""What only a real process shows: signals, pipes, terminals, speed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal import PROGRAM, in_terminal


def test_a_closed_pipe_is_no_traceback(jobs, start: Callable[..., subprocess.Popen[str]]) -> None:
    jobs.ok("send", "jobs", "-", "-q", stdin="\n".join(map(str, range(20_000))))
    with start("peek", "jobs", "--limit", "20000") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def in_shell(command: str, url: str, *, buffered: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a line of sh, in which `shardq` is the program."""
    environment = os.environ | {"SHARDQ_URL": url, "PYTHONUNBUFFERED": "" if buffered else "1"}
    line = command.replace("shardq", shlex.quote(PROGRAM))
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        "shardq receive jobs >&-",
        "shardq list >&-",
        "shardq --help >&-",
        "shardq send jobs - <&-",
        "shardq ack jobs <&-",
    ],
)
def test_a_closed_stdin_or_stdout_is_an_error_that_says_so(jobs, url: str, command: str) -> None:
    jobs.ok("send", "jobs", "a", "-q")
    ended = in_shell(command, url)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "shardq: file: stdin or stdout is closed: the command needs it\n"


def test_closed_streams_do_not_matter_to_a_command_that_does_not_use_them(jobs, url: str) -> None:
    assert in_shell("shardq send jobs a -q <&- >&- 2>&-", url).returncode == 0
    assert jobs.json("stats", "jobs")["ready"] == 1


@pytest.mark.parametrize("command", ["stats jobs --shards", "peek jobs", "plan --rate 1 --size 1", "--help"])
def test_a_locale_without_unicode_is_no_error(jobs, url: str, command: str) -> None:
    jobs.ok("send", "jobs", "é💥", "-q")
    ended = in_shell(f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 shardq {command}", url)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_behind_a_file_is_told_with_its_name(jobs, url: str) -> None:
    jobs.ok("send", "jobs", "a", "-q")
    ended = in_shell("shardq receive jobs --output /dev/full", url)
    assert ended.returncode == 1
    assert "No space left on device: '/dev/full'" in ended.stderr
    counts = jobs.json("stats", "jobs")
    assert counts["ready"] + counts["in_flight"] == 1


@pytest.mark.parametrize(
    "command",
    ["--url sqlite:///x.db create other", "work jobs --exec true --idle-exit 0", "receive jobs -o x"],
)
def test_a_current_folder_that_is_gone_is_told_as_that(jobs, url: str, tmp_path: Path, command: str) -> None:
    jobs.ok("send", "jobs", "a", "-q")
    ended = in_shell(f"mkdir gone && cd gone && rmdir ../gone && shardq {command}", url)
    assert ended.returncode == 1
    assert ended.stderr == "shardq: file: the current folder does not exist any more: change to another one\n"


def test_a_full_disk_behind_stderr_ends_no_worker(jobs, url: str) -> None:
    jobs.ok("send", "jobs", "a", "-q")
    ended = in_shell("shardq work jobs --exec true --idle-exit 0 2>/dev/full", url)
    assert ended.returncode == 0
    assert jobs.json("stats", "jobs")["ready"] == 0


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "command", ["receive jobs", "peek jobs --json", "stats jobs", "--help", "completion bash"]
)
def test_a_full_disk_behind_stdout_is_one_line_on_stderr_and_nothing_is_acked(
    jobs, url: str, command: str, buffered: bool
) -> None:
    jobs.ok("send", "jobs", "a", "-q")
    ended = in_shell(f"shardq {command} >/dev/full", url, buffered=buffered)
    assert ended.returncode == 1
    told = "stdout could not be written: No space left on device"
    if "--json" in command:
        assert json.loads(ended.stderr)["error"] == told
    else:
        assert ended.stderr == f"shardq: file: {told}\n"
    counts = jobs.json("stats", "jobs")
    assert counts["ready"] + counts["in_flight"] == 1


def test_ctrl_c_is_one_line_and_exit_code_130(jobs, start: Callable[..., subprocess.Popen[str]]) -> None:
    with start("stats", "jobs", "--watch", "--interval", "0.2", "--json") as process:
        assert json.loads(process.stdout.readline())["per_second"] is None
        assert json.loads(process.stdout.readline())["per_second"]["ready"] == 0
        process.send_signal(signal.SIGINT)
        assert json.loads(process.stderr.read())["error"] == "stopped by Ctrl-C"
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_send_that_is_interrupted_keeps_the_lines_that_it_did_not_send(
    jobs, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    rest = tmp_path / "rest.jsonl"
    with start("send", "jobs", "-", "--unsent", str(rest), stdin=subprocess.PIPE) as process:
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(number)
        process.stdin.write("two\nthree\n")
        process.stdin.close()
        assert process.stderr.read().startswith("shardq: interrupted: 1 message sent; 2 lines kept: ")
    assert process.returncode == 130
    assert jobs.json("stats", "jobs")["ready"] == 1
    jobs.ok("send", "jobs", "--jsonl", "--file", str(rest))
    assert sorted(each["body"] for each in jobs.lines("peek", "jobs")) == ["one", "three", "two"]


def test_a_send_whose_ids_nobody_reads_any_more_keeps_the_lines_that_it_did_not_send(
    jobs, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    rest = tmp_path / "rest.jsonl"
    with start("send", "jobs", "-", "--unsent", str(rest), stdin=subprocess.PIPE) as process:
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write("two\n")
        process.stdin.flush()
        while jobs.json("stats", "jobs")["ready"] < 2:
            time.sleep(0.02)
        process.stdin.write("three\nfour\n")
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
    sent = jobs.json("stats", "jobs")["ready"]
    kept = rest.read_text().splitlines()
    assert sent + len(kept) == 4
    assert kept


def test_sigterm_ends_work_cleanly_and_gives_back_what_was_not_started(
    jobs, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "here.py").write_text(
        "import time\ndef slow(message):\n    time.sleep(0.1)\n    open('began', 'w')\n"
    )
    jobs.ok("alter", "jobs", "--max-deliveries", "5")  # at its last delivery a message would be held alone
    jobs.ok("send", "jobs", "-", "-q", stdin="\n".join(map(str, range(100))))
    with start("work", "jobs", "--handler", "here:slow", "--json") as process:
        while not (tmp_path / "began").exists() and process.poll() is None:
            time.sleep(0.02)
        process.terminate()
        total = json.loads(process.stdout.read())["total"]
        (begun,) = process.stderr.read().splitlines()
    assert begun.startswith("working on jobs ")
    assert process.returncode == 0
    assert total["worked"] + total["returned"] == 100
    assert jobs.json("stats", "jobs")["ready"] == total["returned"] > 0


def test_a_terminal_shows_progress_and_a_pipe_does_not(jobs, url: str, tmp_path: Path) -> None:
    file = tmp_path / "many"
    file.write_text("\n".join(map(str, range(30_000))))
    seen, code = in_terminal(["send", "jobs", "--file", str(file), "--quiet"], url)
    assert code == 0
    assert "messages" in seen
    assert "/s" in seen
    assert jobs.ok("send", "jobs", "--file", str(file), "--quiet").stderr.count("\n") == 1
    seen, code = in_terminal(["work", "jobs", "--exec", "true", "--batch", "5"], url, ctrl_c=(" worked, ",))
    assert code == 0
    assert "in flight" in seen
    assert "Traceback" not in seen


def test_what_a_handler_prints_has_lines_of_its_own(jobs, url: str) -> None:
    jobs.ok("send", "jobs", "-", "-q", stdin="\n".join(map(str, range(30))))
    seen, code = in_terminal(["work", "jobs", "--exec", "echo heard; sleep 0.02", "--idle-exit", "0.1"], url)
    lines = [line.rstrip("\r") for line in seen.split("\n")]
    assert code == 0
    assert lines.count("heard") == 30
    assert sum("heard" in line for line in lines) == 30
    assert any("in flight" in line for line in lines)


def test_ctrl_c_twice_ends_work_with_its_commands_and_says_what_is_in_flight(jobs, url: str) -> None:
    jobs.ok("alter", "jobs", "--max-deliveries", "5")  # at its last delivery a message would be held alone
    jobs.ok("send", "jobs", "a", "b", "c")
    command = "echo it has begun; exec sleep 600"  # the terminal is closed when this has ended too
    seen, code = in_terminal(
        ["work", "jobs", "--exec", command], url, ctrl_c=("3 in flight", "ends after those at hand")
    )
    assert code == 130
    assert "shardq: interrupted: ended at once with 3 messages in flight" in seen
    assert jobs.json("stats", "jobs")["in_flight"] == 3


def test_a_terminal_shows_live_stats_until_ctrl_c(jobs, url: str) -> None:
    jobs.ok("send", "jobs", "x")
    seen, code = in_terminal(
        ["stats", "jobs", "--watch", "--shards", "--interval", "0.1"], url, ctrl_c=("+0/s",)
    )
    assert code == 130
    assert "█" in seen


def test_what_workers_did_is_told_though_their_queue_was_deleted(jobs, url: str) -> None:
    jobs.ok("send", "jobs", "a")
    ended = in_shell("shardq work jobs --exec 'shardq delete jobs --yes' --idle-exit 30", url)
    assert ended.returncode == 3
    assert "1 message worked in " in ended.stderr
    assert "queue 'jobs' does not exist" in ended.stderr
