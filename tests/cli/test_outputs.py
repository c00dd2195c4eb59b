"""Files, pipes and devices that commands write to."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.terminal import PROGRAM

WRITING: dict[str, Callable[[str], list[str]]] = {
    "receive": lambda path: ["receive", "jobs", "--output", path],
    "get": lambda path: ["get", "jobs", "--unique-key", "k", "--output", path],
    "send": lambda path: ["send", "jobs", "--jsonl", '{"body": 7}', "--unsent", path],
}
WRITTEN = {"receive": b"body", "get": b"body", "send": b'{"body": 7}\n'}


@pytest.fixture(params=WRITING)
def command(jobs, request: pytest.FixtureRequest) -> str:
    """A command that writes a file, and a message for it."""
    jobs.ok("send", "jobs", "body", "--unique-key", "k")
    name: str = request.param
    return name


@contextmanager
def read_end(pipe: Path) -> Iterator[int]:
    """The end of a named pipe that a command finds a reader at."""
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield end
    finally:
        os.close(end)


@pytest.mark.parametrize("linked", [False, True])
def test_a_named_pipe_is_written_and_stays_one(jobs, tmp_path: Path, command: str, *, linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = tmp_path / "link" if linked else pipe
    if linked:
        given.symlink_to(pipe)
    with read_end(pipe) as end:
        jobs(*WRITING[command](str(given)))
        assert os.read(end, 1000) == WRITTEN[command]
    assert (pipe.is_fifo(), given.is_symlink()) == (True, linked)
    assert not list(tmp_path.glob("*.part"))


def test_a_terminal_is_written_as_it_is(jobs, command: str) -> None:
    ours, terminal = os.openpty()
    os.set_blocking(ours, False)
    try:
        jobs(*WRITING[command](os.ttyname(terminal)))
        assert os.read(ours, 1000).replace(b"\r\n", b"\n") == WRITTEN[command]
    finally:
        os.close(terminal)
        os.close(ours)


@pytest.mark.parametrize("there", [False, True])
def test_a_link_to_a_file_stays_one(jobs, tmp_path: Path, command: str, *, there: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        target.touch()
    link.symlink_to(target)
    jobs(*WRITING[command](str(link)))
    assert link.is_symlink()
    assert target.read_bytes() == WRITTEN[command]
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("stdout", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_may_be_a_file_to_which_others_write_too(
    jobs, url: str, tmp_path: Path, command: str, stdout: str
) -> None:
    everything = tmp_path / "everything"
    everything.write_bytes(b"before\n")
    with everything.open("ab") as file:
        arguments = [PROGRAM, "--url", url, *WRITING[command](stdout)]
        subprocess.run(arguments, stdout=file, stderr=subprocess.DEVNULL, check=False)
        file.write(b"after\n")
    assert everything.read_bytes() == b"before\n" + WRITTEN[command] + b"after\n"
    assert sorted(path.name for path in tmp_path.glob("*") if "queue.db" not in path.name) == ["everything"]


@pytest.mark.parametrize("where", ["no folder", "a folder that is read only", "a link to no folder"])
def test_a_file_that_cannot_be_made_is_refused_before_anything_is_received_or_sent(
    jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, where: str
) -> None:
    path = tmp_path / "folder" / "file"
    if where == "a folder that is read only":
        path.parent.mkdir()
        monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)  # root may write everywhere
    if where == "a link to no folder":
        link = tmp_path / "link"
        link.symlink_to(path)
        path = link
    refused = jobs(*WRITING[command](str(path)))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("shardq: usage: Invalid value for ")
    assert "folder" in refused.stderr
    assert jobs.json("stats", "jobs")["ready"] == 1


def test_a_file_of_somebody_else_stays_as_it_is(jobs, tmp_path: Path, command: str) -> None:
    other = tmp_path / "file.part"
    other.write_bytes(b"of a download")
    jobs(*WRITING[command](str(tmp_path / "file")))
    assert (tmp_path / "file").read_bytes() == WRITTEN[command]
    assert other.read_bytes() == b"of a download"


def test_a_name_may_be_as_long_as_the_file_system_lets_it(jobs, tmp_path: Path, command: str) -> None:
    path = tmp_path / ("n" * 255)
    jobs(*WRITING[command](str(path)))
    assert path.read_bytes() == WRITTEN[command]


def test_a_file_that_is_not_written_to_its_end_is_not_left(
    jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    failed = jobs(*WRITING[command](str(tmp_path / "file")))
    assert failed.exit_code in (1, 2)
    assert "No space left on device" in failed.stderr
    jobs("receive", "jobs", "--codec", "json", "--output", str(tmp_path / "file"))
    assert not list(tmp_path.glob("file*"))


def test_lines_that_could_be_neither_sent_nor_kept_hide_neither_the_reason_nor_what_is_stored(jobs) -> None:
    lines = '{"body": "a"}\n{"body": 7}\n{"body": "c"}'
    failed = jobs("send", "jobs", "--jsonl", "-", "-q", "--unsent", "/dev/full", stdin=lines)
    assert failed.exit_code == 2
    assert failed.stderr.startswith(
        "shardq: partial_send: 1 message stored in queue 'jobs', the rest is not: line 2: "
    )
    assert failed.stderr.endswith("could not be kept: [Errno 28] No space left on device: '/dev/full'\n")
