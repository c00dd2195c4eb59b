"""The functions that an application passes to shardq: found by name, and checked. A call must run them to their end.

Calling a coroutine function or a generator function does not run it. The call only makes an object, which has to be
awaited or iterated. Shardq awaits handlers and tasks only: the message of another one would be acked before any work.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any

from shardq.base.texts import described, kind_of, shown
from shardq.errors import InvalidSetting

__all__ = [
    "check_awaitable",
    "check_has_run",
    "check_runs",
    "function_named",
    "is_async",
    "loading",
    "split_name",
]

_ASYNC = "async"
_NOT_THEIRS = ("<frozen", importlib.__file__, str(Path(__file__).parents[1]))
"""Where the files are that an import passes through, beside those of the application."""


def function_named(what: str, name: str) -> Callable[..., Any]:
    """Import the function that ``package.module:function`` names. Raises InvalidSetting, which names its purpose."""
    module, path = split_name(what, name)
    with loading(what, name):
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    if not callable(found):
        raise InvalidSetting(f"{what} {shown(name)} is {kind_of(found)}: name a function")
    return found  # type: ignore[no-any-return]


def split_name(what: str, name: str) -> tuple[str, str]:
    """Split ``package.module:function`` without an import. Raises InvalidSetting for a name of another form."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise InvalidSetting(f"{what} {shown(name)} names no function: give it as 'package.module:function'")
    return module, path


@contextmanager
def loading(what: str, name: str) -> Iterator[None]:
    """Raise InvalidSetting for an error of an import: it names the line, or says how to name a module."""
    try:
        yield
    except Exception as error:
        files = ((step.filename, step.lineno) for step in extract_tb(error.__traceback__))
        steps = [step for step in files if not step[0].startswith(_NOT_THEIRS)]
        hint = ""
        if steps:
            hint = " (in {}, line {})".format(*steps[-1])
        elif isinstance(error, ImportError | TypeError):
            hint = ": name a module as it is imported from this folder, such as 'shop' for shop.py"
        raise InvalidSetting(f"{what} {shown(name)} cannot be loaded: {described(error)}{hint}") from error


def check_runs(name: str, function: object, *, awaits: bool = False) -> None:
    """Raise InvalidSetting if it cannot be called, or if calling it does not run it: it is async or a generator.

    An async function may be given to who ``awaits`` what it returns.
    """
    if not callable(function):
        raise InvalidSetting(f"{name}={shown(function)} is {kind_of(function)}: give a function")
    kind = _kind_of_function(function)
    if kind is not None and not (awaits and kind == _ASYNC):
        raise InvalidSetting(
            f"{name} {_name(function)} is {kind}: calling it does not run it; give "
            + ("a function without yield" if awaits else "a plain function, which may call asyncio.run()")
        )


def is_async(function: object) -> bool:
    """Return True for a function whose call makes a coroutine."""
    return _kind_of_function(function) == _ASYNC


def check_has_run(name: str, function: object, result: object) -> None:
    """Raise InvalidSetting if the function returned something that still has to be awaited or iterated."""
    if isinstance(result, Awaitable | AsyncIterator | Generator):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaits it
        raise InvalidSetting(
            f"{name} {_name(function)} returned {kind_of(result)}, which has not run yet: let it return when "
            "its work is done; its message is not acked"
        )


def check_awaitable(name: str, function: object, made: object) -> Awaitable[object]:
    """Return what a call of an async function made. Raises InvalidSetting if it is nothing to await."""
    if not isinstance(made, Awaitable):
        raise InvalidSetting(
            f"{name} {_name(function)} is not an async function: it returned {kind_of(made)}; give an async function, "
            "which may call yours with asyncio.to_thread()"
        )
    return made


def _kind_of_function(function: object) -> str | None:
    while isinstance(function, partial):
        function = function.func
    for called in (function, getattr(type(function), "__call__", None)):  # noqa: B004 -- as Python looks it up
        if inspect.iscoroutinefunction(called):
            return _ASYNC
        if inspect.isasyncgenfunction(called):
            return "an async generator"
        if inspect.isgeneratorfunction(called):
            return "a generator"
    return None


def _name(function: object) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__
