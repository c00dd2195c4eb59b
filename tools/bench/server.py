"""A server of its own for the comparison, on 127.0.0.1, ended with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .peer import PeerMissing, last_words

START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_program(name: str, *places: str) -> str:
    """The path of a program; raises PeerMissing."""
    for place in (name, *places):
        if found := shutil.which(place):
            return found
    raise PeerMissing(f"{name} is not installed")


class Server:
    """A process with its children, in a process group that is ended as a whole."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = folder / f"{Path(command[0]).name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until(self, answers: Callable[[], object]) -> None:
        """Return once it answers without an error; raises PeerMissing when it ends instead, or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(Exception):
                answers()
                return
            time.sleep(0.1)
        self.stop()
        raise PeerMissing(f"the server did not start: {last_words(self._log.read_text(errors='replace'))}")

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
