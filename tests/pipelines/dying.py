"""A store whose client ends at one of its calls that change something, or does not get the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar

import msgspec

import shardq
from shardq.storage.requests import Fenced, Forward
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore
from tests.dying_store import Died

__all__ = ["MODES", "FragileStore", "Mode"]

P = ParamSpec("P")
T = TypeVar("T")

Mode = Literal["before", "after", "unanswered"]
MODES: tuple[Mode, ...] = ("before", "after", "unanswered")

_CHANGES = {
    "append",
    "acknowledge",
    "claim",
    "confirm_keys",
    "extend",
    "forward",
    "release",
    "reserve_keys",
    "settle",
}


class FragileStore(WrappedStore):
    """Breaks at the change ``calls_left`` changes ahead. Moves between shards in one step only if told so."""

    calls_left: int | None = None
    mode: Mode = "before"
    in_one_step = True

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(
            self.inner.capabilities, forward_across_shards=self.in_one_step, settle_across_shards=False
        )

    def forward(self, request: Forward) -> Fenced:
        if not self.in_one_step and request.acknowledge.shard != request.append.shard:
            raise shardq.UnsupportedByStore("not across shards")
        return super().forward(request)

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if method not in _CHANGES or self.calls_left is None:
            return super().call(method, do, *args, **kwargs)
        if self.mode == "unanswered":
            return self._unanswered(method, do, *args, **kwargs)
        if self.calls_left < 0 or (self.calls_left == 0 and self.mode == "before"):
            self.calls_left = -1
            raise Died
        answer = super().call(method, do, *args, **kwargs)
        self.calls_left -= 1
        if self.calls_left < 0:
            raise Died
        return answer

    def _unanswered(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        answer = super().call(method, do, *args, **kwargs)
        assert self.calls_left is not None
        self.calls_left -= 1
        if self.calls_left == -1:
            raise shardq.OutcomeUnknown("the answer was lost")
        return answer
