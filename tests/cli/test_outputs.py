"""Files, pipes and devices that commands write to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
