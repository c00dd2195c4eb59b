"""How far a run is, shown while it goes on."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

import msgspec

__all__ = ["Pace", "Progress", "View"]

WINDOW = 1.0  # seconds over which rates are measured


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
