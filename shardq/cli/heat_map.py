"""A picture of a queue's shards: time shards from left to right, concurrency shards from top to bottom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardq.queue import ShardState

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["heat_map", "shade"]

SHADES = ("grey23", "dark_green", "green3", "yellow3", "orange1", "red1")
SYMBOLS = "·░▒▓█"


def heat_map(states: Sequence[ShardState], time_shards: int, shards: int, current: int | None = None) -> Text:
    """A cell for each shard, coloured by its ready messages; the time shard that is written now has a mark."""
    from rich.text import Text  # noqa: PLC0415 - slow to import, and only this needs it

    ready = {(state.shard.time_shard, state.shard.number): state.counts.ready for state in states}
    columns = max([time_shards, *(column + 1 for column, _ in ready)])
    rows = max([shards, *(row + 1 for _, row in ready)])
    most = max(ready.values(), default=0)
    text = Text(no_wrap=True, overflow="crop")
    if current is not None:
        text.append(" " * (current + 5) + "▼ now\n")
    for row in range(rows):
        text.append(f"{row:>4} ")
        for column in range(columns):
            level = shade(ready.get((column, row), 0), most)
            text.append(SYMBOLS[min(level, len(SYMBOLS) - 1)], style=SHADES[level])
        text.append("\n")
    text.append(f"     ready messages: · none to █ {most:,}; down: shards, across: time shards")
    return text


def shade(number: int, most: int) -> int:
    """How hot a cell is, from 0 to 5, on a logarithmic scale."""
    if number <= 0 or most <= 0:
        return 0
    return max(1, math.ceil(math.log1p(number) / math.log1p(most) * (len(SHADES) - 1)))
