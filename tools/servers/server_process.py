"""A server that was started here: its folder, its process, its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process whose id is kept in its folder, so that another command can end it."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def pid(self) -> int | None:
        """The process while it runs; its command line has to name the folder."""
        try:
            pid = int((self.folder / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.folder).encode() in command else None

    def start(self, command: Sequence[str], answers: Callable[[], bool]) -> None:
        """Start it and return when it answers; raises RuntimeError when it does not."""
        if self.pid() is not None:
            return
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        (self.folder / "pid").write_text(str(process.pid))
        deadline = time.monotonic() + PATIENCE
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{command[0]} did not start: read {self.log}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process and wait for its end."""
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, how)
        deadline = time.monotonic() + 20
        while self._runs(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        (self.folder / "pid").unlink(missing_ok=True)

    def _runs(self, pid: int) -> bool:
        try:
            return os.waitpid(pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:  # started by another command
            return self.pid() == pid


def listens(address: str, port: int) -> bool:
    """True when something takes connections there."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(address: str, number: int) -> list[int]:
    """Ports that nobody listens on."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind((address, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
