"""The picture that ``shardq stats`` paints."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shardq.cli.heat_map import heat_map
from shardq.cli.snapshot import Snapshot, Total, rows_of, total_of
from shardq.clock import from_datetime
from shardq.queue import Queue

__all__ = ["print_heat_map", "watch_live"]


def watch_live(queue: Queue, snapshots: Iterable[Snapshot], *, shards: bool) -> None:
    """Show one snapshot after the other in place, until Ctrl-C."""
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
    """The heat map on stdout; without colours where that is no terminal."""
    Console().print(_map(queue, snapshot))


def _table(total: Total) -> Table:
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
