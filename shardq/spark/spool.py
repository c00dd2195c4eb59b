"""Rows in an order that does not depend on the order in which they came.

A shuffle hands the rows of a partition over in another order in every attempt, so nothing can be sent under a name
that later attempts find again before the whole partition is known. Bodies, headers and names go to a file in the task's
local folder; of each row a few numbers stay in memory. Then the rows are read back sorted by their identity.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from shardq.closing import Closing
from shardq.spark.columns import Rows

__all__ = ["Spool", "cut"]

PART_MESSAGES = 16_000
PART_BYTES = 8 * 1024 * 1024
_IN_THE_FILE = ("bodies", "headers", "names")


def cut(sizes: Any, *, last: bool) -> Iterator[slice]:
    """Cut rows with these sizes into parts; the end that fills no part is given when it is the ``last``.

    Depends on the sizes only.
    """
    ends, start = np.cumsum(sizes, dtype=np.int64), 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        full = int(np.searchsorted(ends, before + PART_BYTES)) + 1
        end = min(start + PART_MESSAGES, full)
        if end > len(sizes) or (end == len(sizes) and not _full(sizes[start:end])):
            if last:
                yield slice(start, len(sizes))
            return
        yield slice(start, end)
        start = end


def _full(sizes: Any) -> bool:
    return len(sizes) >= PART_MESSAGES or int(sizes.sum()) >= PART_BYTES


class Spool(Closing):
    """The rows of one partition."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=_folder(), prefix="shardq-spool-")  # noqa: SIM115 - closed by close
        self._kept: list[Rows] = []
        self._starts: list[
            dict[str, Any]
        ] = []  # where in the file the values begin; of each added rows, by column
        self._written = 0

    def add(self, rows: Rows) -> None:
        """Keep rows."""
        starts, lengths = {}, {}
        for name in _IN_THE_FILE:
            if getattr(rows, name) is not None:
                starts[name], lengths[name] = self._write(getattr(rows, name))
        self._kept.append(msgspec.structs.replace(rows, **lengths))
        self._starts.append(starts)

    def parts(self) -> Iterator[Rows]:
        """The rows sorted, in parts; to be called once, after the last row."""
        if not self._kept:
            return
        self._file.flush()
        rows = Rows.joined(self._kept)  # with lengths for what is in the file
        starts = {name: np.concatenate([each[name] for each in self._starts]) for name in self._starts[0]}
        order = np.argsort(rows.identities, kind="stable")
        with _Bytes(self._file.fileno()) as stored:
            for places in cut(rows.bodies[order], last=True):
                chosen = order[places]
                part = rows.pick(chosen)
                values = {name: stored.read(starts[name][chosen], getattr(part, name)) for name in starts}
                yield msgspec.structs.replace(part, **values)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _write(self, values: Any) -> tuple[Any, Any]:
        """Where in the file the values begin, and how long they are."""
        self._file.write(b"".join(values))
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        starts = self._written + np.cumsum(lengths) - lengths
        self._written += int(lengths.sum())
        return starts, lengths


class _Bytes(Closing):
    """A file that is read at any place."""

    def __init__(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else None

    def read(self, starts: Any, lengths: Any) -> Any:
        values = np.empty(len(starts), dtype=object)
        stored: Any = self._map if self._map is not None else b""
        ends = starts + lengths
        values[:] = [stored[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return values

    def close(self) -> None:
        if self._map is not None:
            self._map.close()


def _folder() -> str | None:
    """The first of Spark's local folders, where it has any."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return folders[0] if folders[0] and os.access(folders[0], os.W_OK) else None
