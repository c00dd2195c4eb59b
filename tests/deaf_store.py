"""A store that is not told of anything, as if every other client were far away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardq.storage.listening import Listener
from shardq.storage.wrapped_store import WrappedStore


class DeafStore(WrappedStore):
    """Whoever is woken was woken by other signals than the inner store's."""

    def listen(self, wake: Callable[[], None]) -> Listener:
        return _Deaf()


class _Deaf:
    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        return ()

    def rest(self) -> None:
        pass
