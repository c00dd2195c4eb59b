"""A shell command as a handler."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import IO

import msgspec

from shardq.errors import InvalidSetting, ShardqError
from shardq.message import Message
from shardq.outcome import DeadLetter
from shardq.wording import kind_of

__all__ = ["CommandFailed", "ShellCommand"]

WRONG_INPUT = 65  # EX_DATAERR: the message is not worth another try

_MAX_NOTE = 200
_TAIL_BYTES = 64 * 1024


class CommandFailed(ShardqError):
    """Raised when the command for a message exits with another code than 0: ``exit_code``, below 0 for a signal."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class ShellCommand(msgspec.Struct, frozen=True):
    """Runs a shell command for each message, with the body on its standard input.

    The environment variables ``SHARDQ_ID``, ``SHARDQ_QUEUE`` and ``SHARDQ_DELIVERIES`` hold the message's id, its queue
    and its number of deliveries. The command writes to the standard output of the worker. An exit code other than 0 is
    a failure, and the last line of its standard error is the reason. With 65 (EX_DATAERR in ``sysexits.h``: the input
    is wrong) the message becomes a dead letter at once. Processes that it leaves behind are not waited for.
    """

    command: str

    def __post_init__(self) -> None:
        if not isinstance(self.command, str):
            raise InvalidSetting(
                f"command={self.command!r} is {kind_of(self.command)}: give a line for the shell"
            )

    def __call__(self, message: Message) -> None:
        """Run the command; raises CommandFailed, or DeadLetter."""
        environment = os.environ | {
            "SHARDQ_ID": message.id,
            "SHARDQ_QUEUE": message.queue,
            "SHARDQ_DELIVERIES": str(message.deliveries),
        }
        # No pipes, which would be waited for as long as any process has them
        with tempfile.TemporaryFile() as body, tempfile.TemporaryFile() as errors:
            body.write(message.raw)
            body.seek(0)
            ended = subprocess.run(
                self.command, shell=True, stdin=body, stderr=errors, env=environment, check=False
            )
            if ended.returncode == 0:
                return
            failure = CommandFailed(f"exit code {ended.returncode}{_note(errors)}", ended.returncode)
            if ended.returncode == WRONG_INPUT:
                raise DeadLetter() from failure
            raise failure


def _note(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:_MAX_NOTE]}" if lines else ""
