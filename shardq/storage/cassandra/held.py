"""What this client holds: the values of holdings as it last wrote them, so that it can settle them without a read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shardq.storage.cassandra.rows import Holding
from shardq.storage.per_process import OwnLock

__all__ = ["Held"]

_MOST = 256  # tokens that are remembered


class Held:
    """Holdings by shard and token. What others made of them since shows when a change of them is not applied."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._known: dict[tuple[str, bytes], tuple[Holding, ...]] = {}

    def of(self, shard: str, tokens: Iterable[bytes]) -> list[Holding] | None:
        """Return all holdings under the tokens; None when one of the tokens is not known."""
        found: list[Holding] = []
        for token in dict.fromkeys(tokens):
            holdings = self._known.get((shard, token))
            if holdings is None:
                return None
            found += holdings
        return found

    def put(self, shard: str, token: bytes, holdings: Sequence[Holding]) -> None:
        """These are all that there are under the token, as they were just written."""
        with self._lock:
            self._known.pop((shard, token), None)
            if holdings:
                self._known[shard, token] = tuple(
                    msgspec.structs.replace(each, seen=each.value) for each in holdings
                )
            if len(self._known) > _MOST:
                self._known.pop(next(iter(self._known)))

    def forget(self, shard: str, tokens: Iterable[bytes]) -> None:
        """Read them again before the next change."""
        with self._lock:
            for token in tokens:
                self._known.pop((shard, token), None)
