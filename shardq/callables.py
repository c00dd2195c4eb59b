"""Functions that an application gives shardq: they must have run when they return.

Calling a coroutine function or a generator function runs nothing of it: it makes an object that somebody has to
await or to go through. Shardq does neither, so what such a function should have done would count as done.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Generator
from functools import partial

from shardq.errors import InvalidSetting

__all__ = ["check_has_run", "check_runs"]


def check_runs(name: str, function: object) -> None:
    """Raise InvalidSetting when calling the function would not run it: it is async, or a generator."""
    kind = _kind_of_function(function)
    if kind is not None:
        raise InvalidSetting(
            f"{name} {_name(function)} is {kind}: calling it runs nothing of it; give a plain function, "
            "one that calls asyncio.run() if need be"
        )


def check_has_run(name: str, function: object, result: object) -> None:
    """Raise InvalidSetting when what the function returned has still to be awaited or gone through."""
    if isinstance(result, Awaitable | AsyncIterator | Generator):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaits it
        raise InvalidSetting(
            f"{name} {_name(function)} returned a {type(result).__name__}, which has not run yet: let it return when "
            "its work is done; its message is not acked"
        )


def _kind_of_function(function: object) -> str | None:
    while isinstance(function, partial):
        function = function.func
    for called in (function, getattr(type(function), "__call__", None)):  # noqa: B004 -- as Python looks it up
        if inspect.iscoroutinefunction(called):
            return "async"
        if inspect.isasyncgenfunction(called):
            return "an async generator"
        if inspect.isgeneratorfunction(called):
            return "a generator"
    return None


def _name(function: object) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__
