"""The ids of a bulk send, without keeping a string for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

from shardq.receipt import MessageId
from shardq.sharding.shard import Shard

__all__ = ["BundleIdRun", "SentIds"]


class BundleIdRun(Sequence[str]):
    """The ids of a bundle's messages, in order."""

    __slots__ = ("_bundle_id", "_count", "_shard")

    def __init__(self, shard: Shard, bundle_id: bytes, count: int) -> None:
        self._shard, self._bundle_id, self._count = shard, bundle_id, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[position] for position in range(self._count)[index]]
        position = range(self._count)[index]
        return str(MessageId(self._shard, self._bundle_id, position))


class SentIds(Sequence[str]):
    """The ids of the messages of a bulk send, in the order in which they were given.

    A sequence that makes each id when it is asked for: a million messages take about a hundred kilobytes.
    """

    def __init__(self) -> None:
        self._runs: list[Sequence[str]] = []
        self._starts: list[int] = []
        self._length = 0

    def extend(self, run: Sequence[str]) -> None:
        """Add the ids of further messages."""
        if run:
            self._runs.append(run)
            self._starts.append(self._length)
            self._length += len(run)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for run in self._runs:
            yield from run

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[position] for position in range(self._length)[index]]
        position = range(self._length)[index]
        run = bisect_right(self._starts, position) - 1
        return self._runs[run][position - self._starts[run]]

    def __repr__(self) -> str:
        return f"<SentIds of {self._length} messages>"
