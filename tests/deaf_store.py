"""A store that is not told of anything, as if every other client were far away."""

from __future__ import annotations

import time

from shardq.storage.wrapped_store import WrappedStore


class DeafStore(WrappedStore):
    """Whoever is woken was woken by other signals than the inner store's."""

    def wait(self, queue: str, seconds: float) -> bool:
        time.sleep(seconds)
        return False
