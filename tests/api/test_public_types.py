"""Every type of the public API can be imported from shardq, and its annotations can be read at run time."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import contextlib
import datetime
import inspect
import os
import pydoc
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, get_type_hints

import pytest

import shardq
import shardq.broadcast
import shardq.pipelines
import shardq.planning
import shardq.schedules
import shardq.storage.requests
import shardq.storage.store
import shardq.tasks
import shardq.testing
import shardq.topics
import shardq.worker

CLASSES = [value for name in shardq.__all__ if inspect.isclass(value := getattr(shardq, name))]
OPAQUE = {shardq.RetryToken}  # what it holds is for shardq alone
COMMON = [vars(module) for module in (builtins, typing, collections.abc, contextlib, datetime, os)]
PUBLIC = (
    shardq, shardq.broadcast, shardq.pipelines, shardq.planning, shardq.schedules, shardq.storage.requests,
    shardq.storage.store, shardq.tasks, shardq.testing, shardq.topics, shardq.worker,
)  # fmt: skip


def functions_of(cls: type) -> Iterator[Callable[..., Any]]:
    """The public methods of a class, and the functions behind its public properties."""
    for name, member in vars(cls).items():
        match member:
            case _ if name.startswith("_") and name not in (
                "__call__",
                "__enter__",
                "__getitem__",
                "__iter__",
            ):
                continue
            case property():
                assert member.fget is not None
                yield member.fget
            case cached_property():
                yield member.func
            case classmethod() | staticmethod():
                yield member.__func__
            case _ if inspect.isfunction(member):
                yield member


def everything_public() -> Iterator[Any]:
    """Each public class with its constructor and methods, and each public function."""
    for module in PUBLIC:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                yield from (value, *functions_of(value))
                if inspect.isfunction(value.__init__):
                    yield value.__init__
            elif inspect.isfunction(value):
                yield value


@pytest.mark.parametrize("public", list(everything_public()), ids=lambda public: public.__qualname__)
def test_what_is_public_tells_its_signature_and_types_at_run_time(public: Any) -> None:
    """Without any help, as tools do: FastAPI, typer, Sphinx."""
    get_type_hints(public)
    if not typing.is_typeddict(public):
        inspect.signature(public)
    assert pydoc.render_doc(public)


@pytest.mark.parametrize("first", ["shardq.client", "shardq.topics", "shardq.schedules", "shardq.tasks.task"])
def test_types_are_told_whichever_module_is_imported_first(first: str) -> None:
    program = (
        f"import {first}, shardq.client, typing; "
        "print(typing.get_type_hints(shardq.client.Client.topic)['return'].__name__, "
        "typing.get_type_hints(shardq.client.Client.schedules.fget)['return'].__name__)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "Topic Schedules\n"


def annotated() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each annotation that a user meets: where it is, its text, and the names that it can use."""
    for cls in CLASSES:
        if cls not in OPAQUE and cls.__module__.startswith("shardq"):
            for name, text in vars(cls).get("__annotations__", {}).items():
                yield f"{cls.__name__}.{name}", str(text), vars(sys.modules[cls.__module__])
    for function in (shardq.connect, *(each for cls in CLASSES for each in functions_of(cls))):
        for text in function.__annotations__.values():
            yield function.__qualname__, str(text), function.__globals__


def test_every_type_that_a_user_passes_or_receives_is_exported() -> None:
    missing = set()
    for place, text, names in annotated():
        found = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
        for name in found:
            if name == "shardq" or any(name in common for common in COMMON):
                continue
            if name not in shardq.__all__ or getattr(shardq, name) is not names[name]:
                missing.add(f"{name} of {place}")
    assert missing == set()


def test_help_shows_the_codecs_by_their_names() -> None:
    codecs = (shardq.BYTES, shardq.TEXT, shardq.JSON, shardq.MSGPACK)
    assert [repr(codec) for codec in codecs] == [
        "shardq.BYTES",
        "shardq.TEXT",
        "shardq.JSON",
        "shardq.MSGPACK",
    ]


def test_bounds_are_written_as_plain_numbers(queue: shardq.Queue) -> None:
    with pytest.raises(shardq.InvalidSetting, match=r"1 to 2147483648$"):
        queue.peek(0)
