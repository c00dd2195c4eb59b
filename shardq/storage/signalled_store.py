"""A store whose consumers are told of messages through a line of their own."""

# ruff: noqa: D102 -- see the port
from __future__ import annotations

import time

import msgspec

from shardq.storage.requests import Append, Fenced, Finding, Forward, Release
from shardq.storage.signals.line import OpenLine
from shardq.storage.signals.signals import Signals
from shardq.storage.store import Capabilities, Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["SignalledStore"]

_GLANCE = 0.1  # seconds after which it is seen that the line stands again


class SignalledStore(WrappedStore):
    """Does what the inner store does, and signals through the line; while that is broken, as the inner store does."""

    def __init__(self, inner: Store, line: OpenLine) -> None:
        super().__init__(inner)
        self._line, self._signals = line, Signals(line)

    @property
    def capabilities(self) -> Capabilities:
        """What the inner store can do, and signals."""
        return msgspec.structs.replace(self.inner.capabilities, signals=True)

    def close(self) -> None:
        """Tell what is to be told, and close the inner store."""
        self._signals.close()
        self._line.close()
        super().close()

    def diagnose(self) -> tuple[Finding, ...]:
        return (*super().diagnose(), self._line.diagnose())

    def append(self, request: Append) -> None:
        super().append(request)
        self._signals.announce(request.shard.queue)

    def release(self, request: Release) -> Fenced:
        fenced = super().release(request)
        self._signals.announce(request.shard.queue)
        return fenced

    def forward(self, request: Forward) -> Fenced:
        fenced = super().forward(request)
        self._signals.announce(request.append.shard.queue)
        return fenced

    def wait(self, queue: str, seconds: float) -> bool:
        """Sleep until something is appended or released by a client that signals through the same line."""
        deadline = time.monotonic() + seconds
        while not self._signals.watches() and (left := deadline - time.monotonic()) > 0:
            if super().wait(queue, min(left, _GLANCE)):
                return True
        return self._signals.wait(queue, max(0.0, deadline - time.monotonic()))
