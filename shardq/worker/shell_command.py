"""A shell command as a handler."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
import threading
from typing import Self

import msgspec

from shardq.base.texts import kind_of, shown
from shardq.client.outcome import DeadLetter
from shardq.core.message import Message
from shardq.errors import InvalidSetting, ShardqError

__all__ = ["CommandFailed", "ShellCommand"]

WRONG_INPUT = 65  # EX_DATAERR: the message is not worth another try

_MAX_NOTE = 200
_LONGEST_CONTEXT = 512  # characters, as its specification says
_TAIL_BYTES = 64 * 1024


class CommandFailed(ShardqError):
    """Raised when the command for a message exits with another code than 0: ``exit_code``, below 0 for a signal."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class ShellCommand(msgspec.Struct, frozen=True):
    """Runs a shell command for each message, with the body on its standard input.

    The environment variables ``SHARDQ_ID``, ``SHARDQ_QUEUE`` and ``SHARDQ_DELIVERIES`` hold the message's id, its
    queue and its number of deliveries. ``TRACEPARENT`` and ``TRACESTATE`` hold the context of a traced message. The
    command writes to the standard output of the worker. An exit code other than 0 is a failure, and the last line of
    its standard error is the reason. Only the last 64 KiB of that are ever
    kept. With 65 (EX_DATAERR in ``sysexits.h``: the input is wrong) the message becomes a dead letter at once.
    Processes that it leaves behind are not waited for; their standard error is dropped.
    """

    command: str

    def __post_init__(self) -> None:
        if not isinstance(self.command, str):
            raise InvalidSetting(
                f"command={shown(self.command)} is {kind_of(self.command)}: give a line for the shell"
            )

    def __call__(self, message: Message) -> None:
        """Run the command; raises CommandFailed, or DeadLetter."""
        environment = os.environ | {
            "SHARDQ_ID": message.id,
            "SHARDQ_QUEUE": message.queue,
            "SHARDQ_DELIVERIES": str(message.deliveries),
        }
        for name in ("traceparent", "tracestate"):  # where OpenTelemetry has a program look for them
            value = message.headers.get(name)
            if isinstance(value, str) and len(value) <= _LONGEST_CONTEXT and "\0" not in value:
                environment[name.upper()] = value
        # No pipe for the body, which would be waited for as long as any process has it
        with tempfile.TemporaryFile() as body, _ErrorOutput() as errors:
            body.write(message.raw)
            body.seek(0)
            ended = subprocess.run(
                self.command, shell=True, stdin=body, stderr=errors.pipe, env=environment, check=False
            )
            if ended.returncode == 0:
                return
            failure = CommandFailed(
                f"exit code {ended.returncode}{_note(errors.until_now())}", ended.returncode
            )
            if ended.returncode == WRONG_INPUT:
                raise DeadLetter() from failure
            raise failure


class _ErrorOutput:
    """A pipe for the standard error of a command, of which the end is kept.

    It is read until no process has it open, those that the command left behind too: none waits for it, or dies of it.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_bytes(16)
        self._tail, self._marked = b"", threading.Event()
        reading, self.pipe = os.pipe()
        threading.Thread(target=self._read, args=(reading,), name="shardq-stderr", daemon=True).start()

    def until_now(self) -> bytes:
        """Return the end of the output until now. Call it once."""
        os.set_blocking(self.pipe, True)  # the command may have changed that
        os.write(self.pipe, self._mark)
        self._marked.wait()
        return self._tail

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while piece := stream.read(_TAIL_BYTES):
                if not self._marked.is_set():
                    text, mark, _ = (self._tail + piece).partition(self._mark)
                    self._tail = text[-_TAIL_BYTES:]
                    if mark:
                        self._marked.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.pipe)


def _note(errors: bytes) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:_MAX_NOTE]}" if lines else ""
