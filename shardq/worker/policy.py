"""The outcome of a message whose handler raised an error, and the record of the error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

from shardq.base.callables import check_runs, function_named, split_name
from shardq.base.log import Log
from shardq.base.texts import escaped, shown
from shardq.client.outcome import Outcome, Retry
from shardq.core.message import Message
from shardq.errors import InvalidSetting, ShardqError

__all__ = [
    "LONGEST_TEXT",
    "ErrorFunction",
    "HandlerExited",
    "OnError",
    "as_failure",
    "check_on_error",
    "chosen",
    "error_policy",
    "has_long_text",
    "short_trace",
    "shortened",
    "trace_of",
]

_log = Log(__name__)

LONGEST_TEXT = 2_000
"""Characters of an error's text that are logged or kept: that of a driver may have all that was sent in it."""
CALLS = "call_function"
"""The name of a function of shardq that calls one of a program, within middleware: the frames above it are left
out."""
_CALLERS = frozenset({"shardq", "concurrent", "asyncio", "contextlib"})


def trace_of(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame on that is not of shardq, or of its callers of functions.

    Where there is none: nothing for an error of shardq, whose text is complete, else the whole traceback.
    """
    trace = _called(error.__traceback__) or error.__traceback__
    while trace is not None and _is_callers(trace):
        trace = trace.tb_next
    return trace if trace is not None or isinstance(error, ShardqError) else error.__traceback__


def shortened(text: str) -> str:
    """Shorten a text, and add its length if it is too long."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}... ({len(text):,} characters)"


def has_long_text(error: BaseException, trace: TracebackType) -> bool:
    """Return whether the text of the error, or of one that led to it, is too long."""
    return any(len(part) > LONGEST_TEXT for part in _lines(error, trace))


def short_trace(error: BaseException, trace: TracebackType | None) -> str:
    """Write the error with its traceback, and those that led to it, the texts of all of them shortened and escaped."""
    return escaped("".join(map(shortened, _lines(error, trace))))


def _lines(error: BaseException, trace: TracebackType | None) -> list[str]:
    try:
        return traceback.format_exception(type(error), error, trace)
    except Exception:  # an error whose attributes raise is a failure like any other
        return [*traceback.format_tb(trace), f"{type(error).__name__}\n"]


def _called(trace: TracebackType | None) -> TracebackType | None:
    """Return the part that begins where a function was called within middleware, if there is one."""
    while trace is not None and not (trace.tb_frame.f_code.co_name == CALLS and _is_callers(trace)):
        trace = trace.tb_next
    return trace


def _is_callers(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _CALLERS


ErrorFunction = Callable[[Message, Exception], Outcome | None]
OnError = Mapping[type[Exception], Outcome] | ErrorFunction | str | None
"""Outcomes by type of error, a function that chooses one (None: a usual retry), or the name of such a function."""


class HandlerExited(ShardqError):
    """Stands for a raised object of a handler or task that is not an Exception, such as SystemExit: it is a failure.

    ``raised`` is what that was.
    """

    raised: BaseException | None = None


def as_failure(raised: BaseException) -> Exception | None:
    """Return the failure that something raised by a handler is; None for Ctrl-C, which ends the worker."""
    if isinstance(raised, Exception):
        return raised
    if isinstance(raised, KeyboardInterrupt):
        return None
    import asyncio  # noqa: PLC0415 - most workers never need it
    from concurrent.futures import CancelledError  # noqa: PLC0415

    if isinstance(raised, asyncio.CancelledError):
        cancelled = CancelledError("something that the handler awaited was cancelled")
        return cancelled.with_traceback(raised.__traceback__)
    failure = HandlerExited(f"{shown(raised)} ends no worker: return, or raise an Exception")
    failure.raised = raised
    return failure.with_traceback(raised.__traceback__)


def check_on_error(on_error: object) -> None:
    """Raise InvalidSetting for other values; a function that is named is imported when it is needed."""
    if isinstance(on_error, Mapping):
        for kind, outcome in on_error.items():
            _check_entry(kind, outcome)
    elif isinstance(on_error, str):
        split_name("on_error", on_error)
    elif on_error is not None:
        check_runs("on_error", on_error)


def error_policy(on_error: OnError) -> ErrorFunction:
    """Return the function that chooses an outcome; raises InvalidSetting when there is none of the given name."""
    if isinstance(on_error, str):
        return function_named("on_error", on_error)
    if isinstance(on_error, Mapping):
        return _by_type(dict(on_error))
    return on_error or _usual


def chosen(policy: ErrorFunction, message: Message, error: Exception) -> Outcome:
    """Return the outcome that the policy chooses.

    One that fails, or chooses something else, is logged: a usual retry then.
    """
    try:
        outcome = policy(message, error)
    except Outcome as raised:
        return raised
    except BaseException as raised:
        if as_failure(raised) is None:
            raise
        _log.exception("on_error failed for message %s, which is tried again as usual", message.id)
        return Retry()
    if outcome is not None and not isinstance(outcome, Outcome):
        _log.error(
            "on_error returned %r, which is not an outcome: message %s is tried again as usual",
            outcome,
            message.id,
        )
        return Retry()
    return outcome or Retry()


def _usual(_message: Message, _error: Exception) -> None:
    return None


def _by_type(outcomes: dict[type[Exception], Outcome]) -> ErrorFunction:
    """Choose the outcome by the most special class of an error that is named."""

    def choose(_: Message, error: Exception) -> Outcome | None:
        named = (outcomes[kind] for kind in type(error).__mro__ if kind in outcomes)
        return next(named, None)

    return choose


def _check_entry(kind: object, outcome: object) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise InvalidSetting(f"on_error has the key {shown(kind)}: give a subclass of Exception")
    if not isinstance(outcome, Outcome):
        raise InvalidSetting(
            f"on_error[{kind.__name__}]={shown(outcome)} is not an outcome: give a Retry, Snooze, Discard or DeadLetter"
        )
