"""Rows in an order that does not depend on the order in which they came.

A shuffle hands the rows of a partition over in another order in every attempt. So nothing can be sent under a name
that later attempts find again before the whole partition is known. Bodies, headers and names stay in memory up to 64
MiB. The rest goes to a file in the task's local folder, and of each row a few numbers stay. Then the rows are given
sorted by their identity.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import msgspec
import numpy as np

from shardq.base.closing import Closing
from shardq.spark.columns import Rows

__all__ = ["Spool", "full_length"]

PART_MESSAGES = 16_000
PART_BYTES = 8 * 1024 * 1024
# Of each task; what Spark's Python workers may take by default is eight times that.
MEMORY_BYTES = 64 * 1024 * 1024


def full_length(sizes: Any) -> int:
    """Return how many of the rows with these sizes fill a part; more than there are when they do not fill it."""
    by_bytes = int(np.searchsorted(np.cumsum(sizes[:PART_MESSAGES], dtype=np.int64), PART_BYTES)) + 1
    return min(PART_MESSAGES, by_bytes)


class Spool(Closing):
    """The rows of one partition: those that were added first are in memory, the others in a file."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._kept: list[Rows] = []  # with lengths for values
        self._values: list[Rows] = []  # of those in memory
        self._held = 0  # bytes of them
        self._starts: list[dict[str, Any]] = []  # where the other values begin in the file, by column
        self._written = 0

    def add(self, rows: Rows) -> None:
        """Keep rows."""
        lengths = {name: _lengths(values) for name, values in _long(rows).items()}
        self._kept.append(msgspec.structs.replace(rows, **lengths))
        if self._held < MEMORY_BYTES:
            self._values.append(rows)
            self._held += sum(int(one.sum()) for one in lengths.values())
        else:
            self._starts.append(
                {name: self._write(values, lengths[name]) for name, values in _long(rows).items()}
            )

    def rows(self) -> Iterator[Rows]:
        """Yield the rows sorted, as many at a time as fill a part; to be called once, after the last row."""
        if not self._kept:
            return
        rows = Rows.joined(self._kept)
        order = np.argsort(rows.identities, kind="stable")
        with self._reader() as reader:
            while len(order):
                chosen = order[: full_length(rows.bodies[order[:PART_MESSAGES]])]
                yield reader.filled(chosen, rows.pick(chosen))
                order = order[len(chosen) :]

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, values: Any, lengths: Any) -> Any:
        """Write values; returns where in the file they begin."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_folder(), prefix="shardq-spool-")  # noqa: SIM115
        self._file.write(b"".join(values))
        starts = self._written + np.cumsum(lengths) - lengths
        self._written += int(lengths.sum())
        return starts

    def _reader(self) -> _Reader:
        first = Rows.joined(self._values)
        if self._file is None:
            return _Reader(first, {}, None)
        self._file.flush()
        starts = {name: np.concatenate([each[name] for each in self._starts]) for name in self._starts[0]}
        return _Reader(first, starts, _Bytes(self._file.fileno()))


class _Reader(Closing):
    """Values at any place: the first ones are in memory, the others in a file."""

    def __init__(self, first: Rows, starts: dict[str, Any], stored: _Bytes | None) -> None:
        self._first, self._starts, self._stored = first, starts, stored

    def filled(self, places: Any, rows: Rows) -> Rows:
        """Return the rows at these places, with values for lengths."""
        values = {name: self._values(name, places, lengths) for name, lengths in _long(rows).items()}
        return msgspec.structs.replace(rows, **values)

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()

    def _values(self, name: str, places: Any, lengths: Any) -> Any:
        first = getattr(self._first, name)
        if self._stored is None:
            return first[places]
        near = places < len(first)
        values = np.empty(len(places), dtype=object)
        values[near] = first[places[near]]
        values[~near] = self._stored.read(self._starts[name][places[~near] - len(first)], lengths[~near])
        return values


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


def _long(rows: Rows) -> dict[str, Any]:
    """Return the columns of values, or of their lengths."""
    columns = {name: getattr(rows, name) for name in ("bodies", "headers", "names")}
    return {name: column for name, column in columns.items() if column is not None}


def _lengths(values: Any) -> Any:
    return np.fromiter(map(len, values), dtype=np.int64, count=len(values))


def _folder() -> str | None:
    """Return the first of Spark's local folders, where it has any."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return folders[0] if folders[0] and os.access(folders[0], os.W_OK) else None
