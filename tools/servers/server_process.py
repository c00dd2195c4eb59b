"""A server that was started here: its folder, its process, its end."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LAST_LINES = 40  # of the log, for the message about a server that does not start


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process whose id is kept in its folder, so that another command can end it."""

    folder: Path

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / "log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def _signal_file(self) -> Path:
        return self.folder / "signal"

    def pid(self) -> int | None:
        """The process while it runs; its command line has to name the folder."""
        try:
            pid = int(self._pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.folder).encode() in command else None

    def start(
        self,
        command: Sequence[str],
        answers: Callable[[], bool],
        *,
        patience: float,
        user: str | None = None,
        ends_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Start it and return when it answers; raises RuntimeError when it does not.

        It runs as another ``user`` if one is given, and ``ends_by`` is what :meth:`stop` sends it.
        """
        if self.pid() is not None:
            return
        self._signal_file.write_text(str(int(ends_by)))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                user=user,
                group=user and pwd.getpwnam(user).pw_gid,
                extra_groups=[] if user else None,
            )
        self._pid_file.write_text(str(process.pid))
        deadline = time.monotonic() + patience
        while self.pid() is None or not answers():  # its command line is there a moment after it has started
            if process.poll() is not None or time.monotonic() > deadline:
                words = self._last_words(process)
                self.stop()
                raise RuntimeError(f"{Path(command[0]).name} did not start: {words}")
            time.sleep(0.05)
        process.returncode = (
            0  # `stop` waits for it by its number: the object is not to say that it still runs
        )

    def stop(self, how: signal.Signals | None = None, *, patience: float = 20) -> None:
        """End the process and wait for its end; it is killed after ``patience`` seconds."""
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, how or signal.Signals(int(self._signal_file.read_text())))
        deadline = time.monotonic() + patience
        while self._runs(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self._pid_file.unlink(missing_ok=True)

    def _runs(self, pid: int) -> bool:
        try:
            return os.waitpid(pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:  # started by another command
            return self.pid() == pid

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        end = "it did not answer in time" if process.poll() is None else f"it ended with {process.returncode}"
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join((f"{end}; the end of {self.log}:", *lines))
