"""Progress on a terminal as bars, and elsewhere as plain lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from shardq.demo.progress import Progress, View

__all__ = ["live_view"]

LINE_EVERY = 1.0  # seconds between plain lines


@contextmanager
def live_view(console: Console, messages: int) -> Iterator[View]:
    """A view for that console, until the block ends."""
    if not console.is_terminal:
        yield _Lines(console, messages)
        return
    columns = (
        TextColumn("{task.description:>6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[cyan]{task.fields[rate]:>9,.0f}/s"),
        TextColumn("[magenta]{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, refresh_per_second=8) as bars:
        yield _Bars(bars, messages)


class _Bars:
    def __init__(self, bars: Bars, messages: int) -> None:
        self._bars = bars
        self._sent = bars.add_task("sent", total=messages, rate=0.0, note="")
        self._worked = bars.add_task("worked", total=messages, rate=0.0, note="")

    def show(self, progress: Progress) -> None:
        self._bars.update(self._sent, completed=progress.sent, rate=progress.sent_rate)
        note = f"{progress.in_flight:,} in flight"
        self._bars.update(self._worked, completed=progress.worked, rate=progress.worked_rate, note=note)

    def say(self, text: str) -> None:
        self._bars.console.print(f"[bold red]![/] {text}", highlight=False)


class _Lines:
    def __init__(self, console: Console, messages: int) -> None:
        self._console, self._messages = console, messages
        self._next, self._over = 0.0, False

    def show(self, progress: Progress) -> None:
        over = progress.worked >= self._messages
        if self._over or (progress.seconds < self._next and not over):
            return
        self._over, self._next = over, progress.seconds + LINE_EVERY
        self._print(
            f"{progress.seconds:5.1f} s  sent {progress.sent:,} ({progress.sent_rate:,.0f}/s)  "
            f"worked {progress.worked:,} ({progress.worked_rate:,.0f}/s)  {progress.in_flight:,} in flight"
        )

    def say(self, text: str) -> None:
        self._print(f"! {text}")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)
