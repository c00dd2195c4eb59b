"""Tracing all clients of a process, as the automatic instrumentation of OpenTelemetry does with libraries."""

from __future__ import annotations

from functools import wraps
from typing import Any

from shardq.client import Client
from shardq.core.hooks import AllHooks, Hooks
from shardq.otel.tracing import Tracing

__all__ = ["ShardqInstrumentor", "instrument", "uninstrument"]

_MARK = "_shardq_otel"  # of the initializer of clients that are traced


def instrument(tracing: Tracing | None = None) -> Tracing:
    """Trace all clients that are opened in this process from now on, also those of asyncio, and return their hooks.

    They keep their own hooks. A second call changes nothing, and returns the hooks of the first. In a module with
    handlers or tasks it traces the processes of ``shardq work`` too, which import the module before they open their
    client.

    >>> tracing = instrument()
    >>> client = shardq.connect(url)  # is traced
    >>> uninstrument()
    """
    original: Any = Client.__init__
    known: Tracing | None = getattr(original, _MARK, None)
    if known is not None:
        return known
    hooks_of_all = tracing or Tracing()

    @wraps(original)
    def traced(self: Client, *arguments: Any, hooks: Hooks | None = None, **options: Any) -> None:
        if hooks is None:
            hooks = hooks_of_all
        elif not _traces(hooks):
            hooks = AllHooks(hooks_of_all, hooks)
        original(self, *arguments, hooks=hooks, **options)

    setattr(traced, _MARK, hooks_of_all)
    Client.__init__ = traced  # type: ignore[method-assign] # as instrumentations do
    return hooks_of_all


def _traces(hooks: Hooks) -> bool:
    """Return True for hooks that trace already, as those of a client within a transaction do."""
    return isinstance(hooks, Tracing) or (isinstance(hooks, AllHooks) and any(map(_traces, hooks.all)))


def uninstrument() -> None:
    """Trace no client that is opened from now on, unless it is given hooks for that."""
    known: Any = Client.__init__
    if hasattr(known, _MARK):
        Client.__init__ = known.__wrapped__  # type: ignore[method-assign]


class ShardqInstrumentor:
    """The class that ``opentelemetry-instrument`` loads to trace shardq too: see :func:`instrument`."""

    def instrument(self, **options: Any) -> None:
        """Trace all clients that are opened from now on, with the providers that are given."""
        instrument(
            Tracing(
                tracer_provider=options.get("tracer_provider"), meter_provider=options.get("meter_provider")
            )
        )

    def uninstrument(self, **_: Any) -> None:
        """Trace no further clients."""
        uninstrument()
