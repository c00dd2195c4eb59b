"""A client as a process of its own: ``python -m tools.faults.actor ASSIGNMENT``, which is JSON."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec

from .assignment import Assignment
from .detours import install_detours
from .dial import Dial, distort_time

__all__ = ["main"]


def main(words: list[str]) -> None:
    """Distort what this process sees of time and network, then do its work."""
    threading.Thread(target=_end_with_the_campaign, daemon=True).start()
    assignment, dial = surround(words)
    from .roles import play  # noqa: PLC0415 -- nothing that asks for the time may be there before

    play(assignment, dial)


def _end_with_the_campaign() -> None:
    """End this process when the one that has started it is gone, whichever way: then its input is closed."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def surround(words: list[str]) -> tuple[Assignment, Dial]:
    """Let this process see the time and the network of its assignment."""
    assignment = msgspec.json.decode(words[0], type=Assignment)
    dial = Dial(Path(assignment.dial))
    distort_time(dial, sleeps=assignment.sleeps)
    install_detours(assignment.detours)
    return assignment, dial


if __name__ == "__main__":
    main(sys.argv[1:])
elif __name__ == "__mp_main__":  # a process of a pool, which imports the main program before anything else
    surround(sys.argv[1:])
