"""The display of ``shardq stats``: the counts of a queue at one moment, their changes, and a heat map of its shards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from shardq.base.clock import from_datetime
from shardq.cli.times import in_words
from shardq.client.queue import Queue
from shardq.core.counts import QueueCounts, ShardState

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from shardq.client import Client

__all__ = [
    "STATES",
    "Snapshot",
    "Total",
    "changes",
    "heat_map",
    "print_heat_map",
    "rows_of",
    "total_of",
    "watch_live",
]

STATES = ("ready", "delayed", "in_flight", "processed")
SHADES = ("grey23", "dark_green", "green3", "yellow3", "orange1", "red1")
SYMBOLS = "·░▒▓█"


class Total(msgspec.Struct, frozen=True):
    """Messages of a queue by state, and the change of each per second since the snapshot before."""

    queue: str
    ready: int
    delayed: int
    in_flight: int
    processed: int
    oldest: datetime | None
    oldest_seconds: float | None
    late_seconds: float  # for which a message has been due that nobody received
    bytes: int | None = None  # of what is ready or delayed; None if the queue has no max_bytes
    per_second: dict[str, float] | None = None
    shards: Sequence[ShardState] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The shards of a queue at one moment of the store's clock."""

    queue: str
    at: datetime
    shards: tuple[ShardState, ...]

    @classmethod
    def take(cls, client: Client, queue: Queue) -> Snapshot:
        """Count now."""
        shards = queue.shard_states()
        return cls(queue.name, client.now(), shards)

    def number(self, state: str) -> int:
        """Count all messages in a state."""
        return sum(getattr(shard.counts, state) for shard in self.shards)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest message was sent."""
        counts: list[QueueCounts] = [shard.counts for shard in self.shards]
        return min((part.oldest for part in counts if part.oldest is not None), default=None)

    @property
    def late_seconds(self) -> float:
        """For how long the message that could have been received first has been due."""
        return max((shard.counts.late_seconds(self.at) for shard in self.shards), default=0.0)

    @property
    def bytes(self) -> int | None:
        """The bytes of pending messages, where they are counted."""
        sizes = [shard.counts.bytes for shard in self.shards if shard.counts.bytes is not None]
        return sum(sizes) if sizes else None


def changes(now: Mapping[str, int], before: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Return the growth of each number per second."""
    return {name: round((number - before[name]) / max(seconds, 0.001), 1) for name, number in now.items()}


def total_of(now: Snapshot, before: Snapshot | None = None, *, shards: bool = False) -> Total:
    """Add up all shards, with the changes since the snapshot before."""
    numbers = {state: now.number(state) for state in STATES}
    age = None if now.oldest is None else max(0.0, (now.at - now.oldest).total_seconds())
    rates = None
    if before is not None:
        earlier = {state: before.number(state) for state in STATES}
        rates = changes(numbers, earlier, (now.at - before.at).total_seconds())
    return Total(
        now.queue,
        **numbers,
        oldest=now.oldest,
        oldest_seconds=age,
        late_seconds=now.late_seconds,
        bytes=now.bytes,
        per_second=rates,
        shards=now.shards if shards else None,
    )


def rows_of(total: Total) -> list[tuple[str, str, str]]:
    """Show a total as rows: state, number, change per second."""
    rates = total.per_second or {}
    rows = [
        (
            state.replace("_", " "),
            f"{getattr(total, state):,}",
            f"{rates[state]:+,.0f}/s" if state in rates else "",
        )
        for state in STATES
    ]
    age = "none" if total.oldest_seconds is None else in_words(total.oldest_seconds)
    size = [] if total.bytes is None else [("bytes", f"{total.bytes:,}", "")]
    late = in_words(total.late_seconds) if total.late_seconds else "none"
    return [*rows, ("oldest", age, ""), ("late", late, ""), *size]


def watch_live(queue: Queue, snapshots: Iterable[Snapshot], *, shards: bool) -> None:
    """Show one snapshot after the other in place, until Ctrl-C."""
    from rich.console import Console, Group  # noqa: PLC0415 - slow to import, as below
    from rich.live import Live  # noqa: PLC0415

    before = None
    with Live(console=Console(), auto_refresh=False) as live:
        for snapshot in snapshots:
            total = total_of(snapshot, before)
            parts: list[Table | Text] = [_table(total)]
            if shards:
                parts.append(_map(queue, snapshot))
            live.update(Group(*parts), refresh=True)
            before = snapshot


def print_heat_map(queue: Queue, snapshot: Snapshot) -> None:
    """Print the heat map on stdout, with colours if stdout is a terminal."""
    from rich.console import Console  # noqa: PLC0415

    Console().print(_map(queue, snapshot), soft_wrap=True)


def _table(total: Total) -> Table:
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=total.queue, title_justify="left", show_header=False)
    table.add_column("state")
    table.add_column("messages", justify="right", min_width=12)
    table.add_column("change", justify="right", min_width=10)
    for row in rows_of(total):
        table.add_row(*row)
    return table


def _map(queue: Queue, snapshot: Snapshot) -> Text:
    layout = queue.settings.layout
    current = layout.time_shard(from_datetime(snapshot.at))
    return heat_map(snapshot.shards, layout.time_shards, layout.shards, current)


def heat_map(states: Sequence[ShardState], time_shards: int, shards: int, current: int | None = None) -> Text:
    """Draw a cell for each shard, coloured by its ready messages. A mark shows the time shard that is written now.

    The shards of groups, which are beside the ring, are the last column.
    """
    from rich.text import Text  # noqa: PLC0415

    shard = [(state.shard, state.counts.ready) for state in states]
    ring = {(each.time_shard, each.number): ready for each, ready in shard if not each.is_grouped}
    groups = {each.number: ready for each, ready in shard if each.is_grouped}
    columns = max([time_shards, *(column + 1 for column, _ in ring)])
    rows = max([shards, *(row + 1 for _, row in ring)])
    most = max([*ring.values(), *groups.values()], default=0)
    text = Text(no_wrap=True, overflow="crop")

    def cell(ready: int) -> None:
        level = shade(ready, most)
        text.append(SYMBOLS[min(level, len(SYMBOLS) - 1)], style=SHADES[level])

    if current is not None:
        text.append(" " * (current + 5) + "▼ now\n")
    for row in range(max([rows, *(number + 1 for number in groups)])):
        text.append(f"{row:>4} ")
        for column in range(columns):
            if row < rows:
                cell(ring.get((column, row), 0))
            else:
                text.append(" ")
        if groups:
            text.append("  ")
            cell(groups.get(row, 0))
        text.append("\n")
    last = ", and those of groups" if groups else ""
    text.append(f"     ready messages: · none to █ {most:,}; down: shards, across: time shards{last}")
    return text


def shade(number: int, most: int) -> int:
    """Return how hot a cell is, from 0 to 5, on a logarithmic scale."""
    if number <= 0 or most <= 0:
        return 0
    return max(1, math.ceil(math.log1p(number) / math.log1p(most) * (len(SHADES) - 1)))
