"""A store around another one, which measures each request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from shardq.storage.abilities import TransactionalStore
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["ObservedStore", "Requested"]

Requested: TypeAlias = Callable[[str, float, "BaseException | None"], None]
"""Notified when a request has ended: the method, the seconds that it took, and the error that it raised."""

_LOCAL = {"call", "capabilities", "close", "inner", "listen", "now", "within"}
"""What asks the store nothing."""


class ObservedStore(WrappedStore):
    """Does what the inner store does, and notifies of each request that has ended.

    Each method is one function around that of the inner store: a second call for each request would be noticed.
    """

    def __init__(self, inner: Store, requested: Requested) -> None:
        super().__init__(inner)
        self._requested = requested
        for method in vars(WrappedStore).keys() - _LOCAL:
            if not method.startswith("_") and (do := getattr(inner, method, None)) is not None:
                setattr(self, method, _observed(method, do, requested))

    def within(self, connection: object) -> Store:
        """Return the store within a transaction of the application, observed as this one."""
        inner = cast("TransactionalStore", self.inner).within(connection)
        return ObservedStore(inner, self._requested)


def _observed(method: str, do: Callable[..., Any], requested: Requested) -> Callable[..., Any]:
    def observed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            result = do(*args, **kwargs)
        except BaseException as error:
            requested(method, time.perf_counter() - began, error)
            raise
        requested(method, time.perf_counter() - began, None)
        return result

    return observed
