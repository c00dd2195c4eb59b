"""What clients were told before the cut: lines in files of the recorded folder, in order with all other changes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

__all__ = ["FOLDER", "Fate", "Ledger", "Marker"]

FOLDER = "marks"


class Fate(Enum):
    """How far a message came, in this order; what was only begun is open."""

    SENDING = "sending"
    SENT = "sent"
    ACKING = "acking"
    ACKED = "acked"
    DYING = "dying"  # on its way to the dead letters
    DEAD = "dead"


_RANK = {fate: rank for rank, fate in enumerate(Fate)}


class Marker:
    """Writes down what one client is about to do and was told."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / FOLDER
        path.mkdir(exist_ok=True)
        self._file = os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self, fate: Fate, bodies: Iterable[str]) -> None:
        os.write(self._file, f"{fate.value} {' '.join(bodies)}\n".encode())


class Ledger:
    """What all clients were told so far, and when: in microseconds of the machine's own clock."""

    def __init__(self) -> None:
        self.histories: dict[str, list[tuple[int, Fate]]] = {}

    def read(self, line: bytes, at: int = 0) -> None:
        """Take note of a line."""
        word, *bodies = line.decode().split()
        fate = Fate(word)
        for body in bodies:
            history = self.histories.setdefault(body, [])
            # A consumer may have acked what its producer has not yet been told of.
            if not history or _RANK[fate] >= _RANK[history[-1][1]]:
                history.append((at, fate))

    def those(self, *fates: Fate) -> set[str]:
        """The bodies that came so far."""
        return {body for body, history in self.histories.items() if history[-1][1] in fates}
