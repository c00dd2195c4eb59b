"""Handlers of workers whose clients have hooks, which run around each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from shardq.batch import Batch
from shardq.hooks import HookCall, Hooks
from shardq.message import Message

__all__ = ["observed_handler"]

H = TypeVar("H", bound=Callable[[Any], object])


def observed_handler(hooks: Hooks | None, handler: H) -> H:
    """Return the handler of messages, or of batches, with hooks around it; the same one where there are none."""
    if hooks is None:
        return handler

    @wraps(handler)
    def call_handler(given: Message | Batch) -> object:
        messages = list(given) if isinstance(given, Batch) else [given]
        call = HookCall(
            operation="process",
            queue=messages[0].queue,
            messages=messages,
            batch=isinstance(given, Batch),
        )
        with hooks.around(call):
            call.result = handler(given)
        return call.result

    return call_handler  # type: ignore[return-value]
