"""How long to sleep while all permits of a limit are held."""

from __future__ import annotations

from shardq.core.limits.permits import Permits

__all__ = ["PermitPace"]

LONGEST_SECONDS = 5.0  # until the next look: a signal may have been missed, or the limit raised
FIRST_POLL_SECONDS = 0.005  # of a store without signals; each look that finds nothing doubles it
LAST_POLL_SECONDS = 0.25


class PermitPace:
    """Tells when to look for a permit again: when the next lease ends, and else now and then."""

    def __init__(self) -> None:
        self._poll = FIRST_POLL_SECONDS

    def reset(self) -> None:
        """A permit was taken: look quickly again."""
        self._poll = FIRST_POLL_SECONDS

    def until_next_look(self, permits: Permits) -> float:
        """Seconds until the next look, unless something wakes who waits."""
        self._poll, poll = min(2 * self._poll, LAST_POLL_SECONDS), self._poll
        if not permits.signals:
            return poll
        free = permits.seconds_until_free()
        return LONGEST_SECONDS if free is None else max(poll, min(free, LONGEST_SECONDS))
