"""The functions that an application passes to shardq: found by name, and checked. A call must run them to their end.

Calling a coroutine function or a generator function does not run it. The call only makes an object, which somebody has
to await or iterate. Shardq does neither, so the message of such a handler would be acked before any work on it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from functools import partial
from typing import Any

from shardq.errors import InvalidSetting
from shardq.wording import kind_of, shown

__all__ = ["check_has_run", "check_runs", "function_named"]


def function_named(what: str, name: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names. Raises InvalidSetting, which says what it is for."""
    module, separator, path = name.partition(":")
    if not module or not separator or not path:
        raise InvalidSetting(f"{what} {shown(name)} names no function: give it as 'package.module:function'")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidSetting(
            f"{what} {shown(name)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise InvalidSetting(f"{what} {shown(name)} is {kind_of(found)}: name a function")
    return found  # type: ignore[no-any-return]


def check_runs(name: str, function: object) -> None:
    """Raise InvalidSetting if it cannot be called, or if calling it does not run it: it is async or a generator."""
    if not callable(function):
        raise InvalidSetting(f"{name}={shown(function)} is {kind_of(function)}: give a function")
    kind = _kind_of_function(function)
    if kind is not None:
        raise InvalidSetting(
            f"{name} {_name(function)} is {kind}: calling it does not run it; give a plain function, "
            "which may call asyncio.run()"
        )


def check_has_run(name: str, function: object, result: object) -> None:
    """Raise InvalidSetting if the function returned something that still has to be awaited or iterated."""
    if isinstance(result, Awaitable | AsyncIterator | Generator):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaits it
        raise InvalidSetting(
            f"{name} {_name(function)} returned {kind_of(result)}, which has not run yet: let it return when "
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
