"""A client that ends at one of its calls that change something, before it or after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from shardq.storage.wrapped_store import WrappedStore
from tests.dying_store import Died

__all__ = ["Died", "MortalStore"]

P = ParamSpec("P")
T = TypeVar("T")

_CHANGES = {
    "append",
    "acknowledge",
    "claim",
    "release",
    "extend",
    "forward",
    "remove",
    "create_queue",
    "drop_queue",
}


class MortalStore(WrappedStore):
    """Ends its client at the call ``calls_left`` calls ahead; None: never."""

    calls_left: int | None = None
    after = False

    def _call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        dies = False
        if method in _CHANGES and self.calls_left is not None:
            if self.calls_left < 0:
                raise Died
            dies = self.calls_left == 0
            self.calls_left -= 1
        if dies and not self.after:
            raise Died
        answer = super()._call(method, do, *args, **kwargs)
        if dies:
            raise Died
        return answer
