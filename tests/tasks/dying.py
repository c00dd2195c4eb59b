"""A store whose client ends at a change that it makes for tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardq.testing import WrappedStore
from tests.dying_store import Died

__all__ = ["Dying"]


class Dying(WrappedStore):
    """Ends the process at a change, before or after it is made."""

    calls_left: int | None = None
    after = False

    def _call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        dies = False
        if method in ("append", "exchange_keys", "acknowledge") and self.calls_left is not None:
            dies = self.calls_left == 0
            self.calls_left -= 1
        if dies and not self.after:
            raise Died
        answer = super()._call(method, do, *args, **kwargs)
        if dies:
            raise Died
        return answer
