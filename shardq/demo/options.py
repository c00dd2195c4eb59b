"""What the user of the demo may choose."""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The command's options. None: the SQLite file of the run, the data set from the package index, every flight."""

    url: str | None = None
    data: Path | None = None
    messages: int | None = None
    producers: int = 2
    workers: int = 3
    shards: int = 8
    time_shards: int = 10
    batch: int = 500
    visibility_timeout: float = 3.0
    output: Path = Path("shardq-demo")
    kill: bool = True
    keep: bool = False
