"""A store around another one, which measures each request."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol, cast

from shardq.storage.abilities import TransactionalStore
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["ObservedStore"]

_PLAIN = {"close", "listen", "now"}
"""Methods that ask the store nothing, or wait for news: they are called as they are."""

_OWN = {"call", "capabilities", "inner", "within"}


class ObservesRequests(Protocol):
    """Notified of requests: see :class:`shardq.Observer`."""

    def requests(self, store: str, operation: str) -> Callable[[float], None]:
        """Return what is called with the seconds of each request of a kind."""
        ...

    def refused(self, store: str, operation: str, error: BaseException) -> None:
        """Note an error."""
        ...


class ObservedStore(WrappedStore):
    """Does what the inner store does, and notifies of each request that has ended. ``name`` is that of the store.

    Each method is one function around that of the inner store: a second call for each request would be noticed.
    """

    def __init__(self, inner: Store, name: str, observer: ObservesRequests) -> None:
        super().__init__(inner)
        self._name, self._observer = name, observer
        for method in vars(WrappedStore).keys() - _OWN:
            if not method.startswith("_") and (do := getattr(inner, method, None)) is not None:
                setattr(self, method, do if method in _PLAIN else _observed(do, name, method, observer))

    def within(self, connection: object) -> Store:
        """Return the store within a transaction of the application, observed as this one."""
        inner = cast("TransactionalStore", self.inner).within(connection)
        return ObservedStore(inner, self._name, self._observer)


def _observed(
    do: Callable[..., Any], name: str, method: str, observer: ObservesRequests
) -> Callable[..., Any]:
    record = observer.requests(name, method)

    def observed(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return do(*args, **kwargs)
        except BaseException as error:
            observer.refused(name, method, error)
            raise
        finally:
            record(perf_counter() - began)

    return observed
