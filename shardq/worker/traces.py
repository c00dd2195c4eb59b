"""What is told of an error: its text, and where it was raised, without the frames of what calls the handler."""

from __future__ import annotations

import traceback
from types import TracebackType

from shardq.errors import ShardqError

__all__ = ["LONGEST_TEXT", "has_long_text", "short_trace", "shortened", "trace_of"]

LONGEST_TEXT = 2_000
"""Characters of an error's text that are told: that of a driver may have all that was sent in it."""
CALLS = "call_function"
"""The name of a function of shardq that calls one of a program, within middleware: what is above it is left out."""
_CALLERS = frozenset({"shardq", "concurrent", "asyncio", "contextlib"})


def trace_of(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame on that is not of shardq, or of what it calls functions with.

    Where there is none: nothing for an error of shardq, whose text says it all, else the whole traceback.
    """
    trace = _called(error.__traceback__) or error.__traceback__
    while trace is not None and _is_callers(trace):
        trace = trace.tb_next
    return trace if trace is not None or isinstance(error, ShardqError) else error.__traceback__


def shortened(text: str) -> str:
    """A text as far as it is told, and how long it is if that is not all."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}... ({len(text):,} characters)"


def has_long_text(error: BaseException, trace: TracebackType) -> bool:
    """True when the text of the error, or of one that led to it, is too long to be told."""
    return any(len(part) > LONGEST_TEXT for part in traceback.format_exception(type(error), error, trace))


def short_trace(error: BaseException, trace: TracebackType) -> str:
    """The error with its traceback, and those that led to it, the texts of all of them shortened."""
    return "".join(map(shortened, traceback.format_exception(type(error), error, trace)))


def _called(trace: TracebackType | None) -> TracebackType | None:
    """The part that begins where a function was called within middleware, if there is one."""
    while trace is not None and not (trace.tb_frame.f_code.co_name == CALLS and _is_callers(trace)):
        trace = trace.tb_next
    return trace


def _is_callers(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _CALLERS
