"""Services as processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

from tests.processes import running

__all__ = ["serving"]


@contextmanager
def serving(url: str, folder: Path, *options: str) -> Iterator[tuple[Popen[str], str]]:
    """Run a service, and yield its process and its address, when it answers."""
    command = [sys.executable, "-m", "shardq", "--url", url, *options, "--port", "0"]
    with running(command, stderr=PIPE, cwd=folder) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = next(word for word in line.split() if word.startswith("http://"))
        yield process, address.rstrip("/")
