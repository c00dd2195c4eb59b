"""Does every client get on again once the faults are over?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .history import Event, Phase

__all__ = ["Progress", "progress"]


class Progress(msgspec.Struct, frozen=True):
    """How long a client took, in seconds after healing, until an operation succeeded; None: it never did."""

    actor: str
    seconds: float | None


def progress(events: Sequence[Event], actors: Sequence[str], healed: int) -> list[Progress]:
    """The first success of each client among those that were there at the healing and not done yet."""
    first: dict[str, int] = {}
    for event in events:
        if event.at > healed and event.phase is Phase.OK:
            first.setdefault(event.actor, event.at)
    return [
        Progress(actor, round((first[actor] - healed) / 1e9, 2) if actor in first else None)
        for actor in actors
    ]
