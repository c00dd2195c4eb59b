"""A database server that several peers use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .peer import PeerMissing, last_words
from .usage import Usage

TOOLS = Path(__file__).parents[1] / "servers"


class Running(msgspec.Struct, frozen=True):
    """Where a server is found; ``usage`` is None for one that was given: its processes and files are not known.

    ``counts`` are what the server has counted so far, by name.
    """

    url: str
    usage: Usage | None
    counts: Callable[[], Mapping[str, int]] = dict


class Database(msgspec.Struct, frozen=True):
    """Its tool is ``tools/servers/<name>.py``; the URL of one that runs already may be in the environment."""

    name: str
    title: str
    variable: str
    options: tuple[str, ...] = ()
    settle: Callable[[], None] | None = None
    counts: Callable[[], Mapping[str, int]] = dict

    @contextmanager
    def running(self) -> Iterator[Running]:
        """A given server, or one that is started now and stopped at the end. Raises PeerMissing."""
        if self.variable in os.environ:
            yield Running(os.environ[self.variable], None, self.counts)
            return
        tool = [sys.executable, str(TOOLS / f"{self.name}.py")]
        with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder:
            place = ("--folder", folder)
            started = subprocess.run(
                [*tool, "start", *place, *self.options], capture_output=True, text=True, check=False
            )
            if started.returncode:
                raise PeerMissing(f"{self.title} could not be started: {last_words(started.stderr)}")
            os.environ[self.variable] = started.stdout.strip()
            try:
                yield Running(os.environ[self.variable], _usage(Path(folder), self.settle), self.counts)
            finally:
                del os.environ[self.variable]
                subprocess.run([*tool, "stop", *place], check=True)


def _usage(folder: Path, settle: Callable[[], None] | None) -> Usage:
    """Each server keeps its process's id in a folder of its own."""
    return Usage(tuple(int(file.read_text()) for file in sorted(folder.glob("*/pid"))), (folder,), settle)
