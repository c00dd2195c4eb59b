"""Errors as exit codes and lines on stderr, of text or of JSON: the only place that decides both."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from shardq.base.texts import masked
from shardq.errors import (
    BodyNotFound,
    ConsumerNotFound,
    InvalidMessage,
    InvalidName,
    InvalidReceipt,
    InvalidSetting,
    OutcomeUnknown,
    PartialSend,
    QueueNotFound,
    ScheduleNotFound,
    ShardqError,
    StoreUnavailable,
    UnreadableSettings,
)

if TYPE_CHECKING:
    from shardq.storage.store import Store

__all__ = [
    "DISK_FULL",
    "FAILURE",
    "NOT_FOUND",
    "UNAVAILABLE",
    "USAGE",
    "SkippedErrors",
    "StoreMissing",
    "end",
    "exit_code",
    "exit_code_of_all",
    "explain",
    "warn_if_unreachable",
]

FAILURE, USAGE, NOT_FOUND, UNAVAILABLE = 1, 2, 3, 4
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal, as shells count

QUIET_SECONDS = 3.0  # that a command may take without a note
PING_SECONDS = 5.0


class StoreMissing(click.ClickException):
    """Raised when the file of the store does not exist."""

    exit_code = NOT_FOUND


DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Of a full disk, a quota that is used up, and a file that may grow no more. One that names no file is of stdout."""

_CODES: dict[type[ShardqError], int] = {
    UnreadableSettings: FAILURE,  # no fault of the command that was typed
    BodyNotFound: NOT_FOUND,
    QueueNotFound: NOT_FOUND,
    ScheduleNotFound: NOT_FOUND,
    ConsumerNotFound: NOT_FOUND,
    InvalidSetting: USAGE,
    InvalidName: USAGE,
    InvalidMessage: USAGE,
    InvalidReceipt: USAGE,
    StoreUnavailable: UNAVAILABLE,
    OutcomeUnknown: UNAVAILABLE,
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error. A partial send has the exit code of the error that stopped it."""
    if isinstance(error, PartialSend) and isinstance(error.__cause__, ShardqError):
        return exit_code(error.__cause__)
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return BROKEN_PIPE if isinstance(error, BrokenPipeError) else FAILURE


def exit_code_of_all(errors: Iterable[BaseException]) -> int:
    """Return the exit code that these errors have in common, 1 if they have several, and 0 if there are none."""
    codes = set(map(exit_code, errors)) or {0}
    return codes.pop() if len(codes) == 1 else FAILURE


class SkippedErrors:
    """The errors of what a command could not read: it shows the rest, and fails at its end."""

    def __init__(self) -> None:
        self._errors: dict[str, ShardqError] = {}

    def __call__(self, error: ShardqError) -> None:
        """Write the error on stderr, unless it was written before, as a command may read again and again."""
        if self._errors.setdefault(str(error), error) is error:
            as_json = click.get_current_context().params.get("as_json")
            click.echo(explain_as_json(error) if as_json else explain(error), err=True)

    @property
    def exit_code(self) -> int:
        """The exit code of the errors; 0 if nothing was left out."""
        return exit_code_of_all(self._errors.values())


def explain(error: BaseException) -> str | None:
    """Return one line with the kind and the text of the error, or the help of a bare group. None: write nothing.

    A URL that was given in the place of something else is masked, as its login is secret.
    """
    if isinstance(error, BrokenPipeError):
        return None
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    kind, text = _describe(error)
    return f"shardq: {kind}: {text}"


def explain_as_json(error: BaseException) -> str | None:
    """Return the same line as a JSON object, which has the exit code and whether repeating may help, too."""
    if isinstance(error, BrokenPipeError):
        return None
    kind, text = _describe(error)
    retryable = bool(getattr(error, "retryable", False))
    facts = {"code": kind, "error": text, "exit_code": exit_code(error), "retryable": retryable}
    return msgspec.json.encode(facts).decode()


def _describe(error: BaseException) -> tuple[str, str]:
    match error:
        case ShardqError():
            words = error.code, str(error)
        case click.exceptions.NoArgsIsHelpError():
            words = "usage", _with_hint(click.UsageError("Missing command.", error.ctx))
        case click.UsageError():
            words = "usage", _with_hint(error)
        case StoreMissing():
            words = "store_not_found", error.format_message()
        case click.ClickException():
            words = "failed", error.format_message()
        case click.Abort():
            unasked = isinstance(error.__context__, EOFError)  # stdin has no answer
            hint = ": give --yes to do it without a question" if unasked else ""
            words = "cancelled", f"nothing was changed{hint}"
        case KeyboardInterrupt():
            words = "interrupted", str(error) or "stopped by Ctrl-C"
        case OSError():
            words = "file", _where(error)
        case _:
            words = "internal", f"{type(error).__name__}: {error}; SHARDQ_DEBUG=1 shows where"
    kind, text = words
    return kind, " ".join(masked(text).split())


def _where(error: OSError) -> str:
    """Return the text of an error, with the name of its standard stream, or of the folder that is gone."""
    if error.errno == errno.EBADF:
        return "stdin or stdout is closed: the command needs it"
    if error.filename is None and (error.errno in DISK_FULL or _is_stdout_unwritable()):
        return f"stdout could not be written: {error.strerror or error}"
    if error.errno == errno.ENOENT and not _has_folder():
        return "the current folder does not exist any more: change to another one"
    return str(error)


def _has_folder() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def _is_stdout_unwritable() -> bool:
    """Return whether buffered output is left that cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _with_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "shardq"
    text = error.format_message()
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} See `{path} --help`."


def end(error: BaseException, *, as_json: bool = False) -> int:
    """Explain the error to the user, or to a program, and return the exit code."""
    if os.environ.get("SHARDQ_DEBUG") and not isinstance(error, BrokenPipeError):
        import traceback  # noqa: PLC0415 - only here, and slow to import

        click.echo("".join(map(masked, traceback.format_exception(error))), err=True, nl=False)
    line = explain_as_json(error) if as_json else explain(error)
    if _is_stdout_unwritable():
        _silence_stdout()
    if line is not None:
        with suppress(OSError):
            click.echo(line, err=True)
    return exit_code(error)


def _silence_stdout() -> None:
    """Discard buffered output: it has no reader, and writing it at the end would fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return


def warn_if_unreachable(store: Store) -> threading.Timer:
    """Ping the store a moment from now, and write why there is no answer; cancel the timer when the command ends."""
    timer = threading.Timer(QUIET_SECONDS, _ping, [store])
    timer.daemon = True
    timer.start()
    return timer


def _ping(store: Store) -> None:
    from shardq.core.pinging import ping  # noqa: PLC0415 - most commands have ended before

    try:
        ping(store, PING_SECONDS)
    except StoreUnavailable as error:
        click.echo(f"shardq: still trying: {error}", err=True)
    except ShardqError:
        return  # the command meets it too
