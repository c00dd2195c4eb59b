"""What a bulk send draws its messages from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

__all__ = ["Source"]


class Source:
    """The items of an iterable, some at a time; those that were given back come again.

    An item that was drawn is never lost: what comes before an error of the iterable is handed out before it is raised.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._given_back: deque[Any] = deque()
        self._error: Exception | None = None

    def take(self, most: int) -> list[Any]:
        """Return the next items; none at the end."""
        taken = [self._given_back.popleft() for _ in range(min(most, len(self._given_back)))]
        if self._error is not None and not taken:
            raise self._error
        if self._error is None and len(taken) < most:
            try:
                taken.extend(islice(self._items, most - len(taken)))
            except Exception as error:
                if not taken:
                    raise
                self._error = error
        return taken

    def give_back(self, items: list[Any]) -> None:
        """Hand these out again before all others, in their order."""
        self._given_back.extendleft(reversed(items))

    @property
    def drawn(self) -> Iterator[Any]:
        """What was given back and not handed out since."""
        return iter(self._given_back)

    @property
    def rest(self) -> Iterator[Any]:
        """All that is left."""
        while items := self.take(1):
            yield from items
