"""A store that is not told of anything, as if every other client were far away."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shardq.storage.wrapped_store import WrappedStore


class DeafStore(WrappedStore):
    """Whoever is woken was woken by other signals than the inner store's."""

    def wait(self, queues: Sequence[str], seconds: float) -> tuple[str, ...]:
        time.sleep(seconds)
        return ()
