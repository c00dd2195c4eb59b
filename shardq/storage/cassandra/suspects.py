"""Which nodes to ask last: those that left a request without an answer a moment ago."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from cassandra.policies import WrapperPolicy

__all__ = ["Suspects"]

_SECONDS = 15.0


class Suspects(WrapperPolicy):  # type: ignore[misc]
    """Puts such nodes at the end of every plan.

    The driver knows a node as down when its connections end. One that hangs keeps them, and would be asked first again
    by every repetition of a request.
    """

    def __init__(self, child: Any) -> None:
        super().__init__(child)
        self._until: dict[Any, float] = {}

    def add(self, node: Any) -> None:
        """A request to the node had no answer in time."""
        self._until[node] = time.monotonic() + _SECONDS

    def trusted(self) -> list[Any]:
        """Return the nodes that are asked for anything and not suspected."""
        now = time.monotonic()
        return [node for node in self._child_policy.make_query_plan() if self._until.get(node, 0.0) <= now]

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        """Return the nodes in the order in which they are asked."""
        now = time.monotonic()
        suspected = []
        for node in self._child_policy.make_query_plan(working_keyspace, query):
            if self._until.get(node, 0.0) > now:
                suspected.append(node)
            else:
                yield node
        yield from suspected
