"""A terminal of its own for a command, and its Ctrl-C."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["PROGRAM", "in_terminal"]

PROGRAM = str(Path(sys.executable).parent / "shardq")
"""The command, as it is installed beside the interpreter."""


def in_terminal(arguments: list[str], url: str, *, ctrl_c: tuple[str, ...] = ()) -> tuple[str, int]:
    """Run in a terminal of its own; press Ctrl-C when each of these texts has appeared.

    Returns what was seen until nothing had the terminal open any more, and the exit code.
    """
    terminal, theirs = pty.openpty()
    environment = os.environ | {"SHARDQ_URL": url, "TERM": "xterm"}
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while data := _read(terminal):
            seen += data
            if ctrl_c and ctrl_c[0].encode() in seen:
                os.killpg(process.pid, signal.SIGINT)
                ctrl_c = ctrl_c[1:]
    except BaseException:  # the time of the test is over
        process.send_signal(signal.SIGQUIT)  # a pool ends at once, with its commands
        raise
    finally:
        os.close(terminal)
        _end(process)
    return seen.decode("utf-8", "replace"), process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process, and kill it if it does not end."""
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the last process has closed it
        return b""
