"""Where an error was raised, as those see it who wrote the handler: without the frames of what calls it."""

from __future__ import annotations

from types import TracebackType

from shardq.errors import ShardqError

__all__ = ["trace_of"]

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


def _called(trace: TracebackType | None) -> TracebackType | None:
    """The part that begins where a function was called within middleware, if there is one."""
    while trace is not None and not (trace.tb_frame.f_code.co_name == CALLS and _is_callers(trace)):
        trace = trace.tb_next
    return trace


def _is_callers(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _CALLERS
