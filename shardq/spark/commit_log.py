"""Which batch a query has committed, as its checkpoint tells.

Spark writes ``offsets/N`` before batch N begins, with a line for the end of each source, and ``commits/N`` when the
batch is done. It tells a source of a commit only when it plans the batch after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from shardq.errors import InvalidSetting

__all__ = ["CommitLog"]

_SCHEMES = {"s3a": "s3", "s3n": "s3"}  # what Hadoop calls otherwise than Arrow


class CommitLog:
    """The log of commits below a checkpoint location; raises InvalidSetting where Python cannot read there.

    What is not there, or is not understood, is not committed.
    """

    def __init__(self, location: str) -> None:
        self._files, self._folder = _opened(location)
        self._newest: tuple[int, list[dict[str, Any]]] = (-1, [])

    def has(self, offset: dict[str, Any]) -> bool:
        """Tell whether the batch that ends at this offset, or one after it, is committed; raises OSError."""
        return any(
            end.get("incarnation") == offset["incarnation"] and end.get("seq", -1) >= offset["seq"]
            for end in self._ends()
        )

    def _ends(self) -> list[dict[str, Any]]:
        """Where the sources were at the end of the newest batch that is committed."""
        newest = max(self._numbers(), default=-1)
        if newest != self._newest[0]:
            with self._files.open_input_stream(f"{self._folder}/offsets/{newest}") as stream:
                lines = stream.read().decode("utf-8", "replace").splitlines()
            self._newest = newest, list(_objects(lines))
        return self._newest[1]

    def _numbers(self) -> Iterator[int]:
        chosen = fs.FileSelector(f"{self._folder}/commits", allow_not_found=True)
        names = (info.base_name for info in self._files.get_file_info(chosen))
        return (int(name) for name in names if name.isdecimal())


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or a URL of Hadoop, and the path there."""
    scheme, _, rest = location.partition(":")
    if scheme == "file":
        place = f"/{rest[2:].partition('/')[2]}" if rest.startswith("//") else rest
        return fs.LocalFileSystem(), place  # a path of Hadoop: neither '#' nor '?' ends it
    if "://" not in location:
        return fs.LocalFileSystem(), str(Path(location).absolute())
    try:
        files, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidSetting(
            f"option checkpointLocation={location!r} cannot be read from Python ({error}): leave it out of readStream, "
            "where it lets batches be acked when they are committed; they are acked at the next trigger then"
        ) from error
    return files, path.rstrip("/")


def _objects(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
