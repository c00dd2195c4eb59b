"""How far a run is, shown while it goes on: as bars on a terminal, and as plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

__all__ = ["Pace", "Progress", "View", "live_view"]

WINDOW = 1.0  # seconds over which rates are measured
LINE_EVERY = 1.0  # seconds between plain lines


class Progress(msgspec.Struct, frozen=True):
    """A run at one moment: messages so far, and messages per second over the last second."""

    seconds: float
    sent: int
    worked: int
    in_flight: int
    sent_rate: float
    worked_rate: float


class View(Protocol):
    """Something that shows progress."""

    def show(self, progress: Progress) -> None:
        """Show it; called many times a second."""
        ...

    def say(self, text: str) -> None:
        """Show a sentence that stays."""
        ...


class Pace:
    """Turns counts into rates."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._steps: deque[tuple[float, int, int]] = deque([(self._began, 0, 0)])

    def step(self, sent: int, worked: int, in_flight: int) -> Progress:
        """The progress at this moment."""
        now = time.monotonic()
        while len(self._steps) > 1 and self._steps[1][0] <= now - WINDOW:
            self._steps.popleft()
        then, sent_then, worked_then = self._steps[0]
        self._steps.append((now, sent, worked))
        span = max(now - then, 1e-3)
        rates = (sent - sent_then) / span, (worked - worked_then) / span
        return Progress(now - self._began, sent, worked, in_flight, *rates)


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
