"""Stores whose client ends at a call that changes something."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

import msgspec

import shardq
from shardq.storage.requests import Fenced, Forward
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["STEPS", "Died", "DyingStore", "MortalStore"]

P = ParamSpec("P")
T = TypeVar("T")

STEPS = ("extend", "reserve_keys", "append", "confirm_keys", "acknowledge")
"""Of a move, in their order."""


_CHANGES = frozenset(
    {"append", "acknowledge", "claim", "release", "extend", "forward", "remove", "create_queue", "drop_queue"}
)


class Died(KeyboardInterrupt):
    """The process ended. Anything else that a handler raises would be a failure of its message."""


class MortalStore(WrappedStore):
    """Ends its client at the change ``calls_left`` changes ahead, and lets it change nothing more; None: never."""

    changes: Collection[str] = _CHANGES
    calls_left: int | None = None
    after = False

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        dies = False
        if method in self.changes and self.calls_left is not None:
            if self.calls_left < 0:
                raise Died
            dies = self.calls_left == 0
            self.calls_left -= 1
        if dies and not self.after:
            raise Died
        answer = super().call(method, do, *args, **kwargs)
        if dies:
            raise Died
        return answer


class DyingStore(MortalStore):
    """Takes no message from one shard to another in one step, and ends the process at one of the steps of a move."""

    changes = STEPS

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, forward_across_shards=False)

    def forward(self, request: Forward) -> Fenced:
        if request.acknowledge.shard != request.append.shard:
            raise shardq.UnsupportedByStore("not across shards")
        return super().forward(request)
