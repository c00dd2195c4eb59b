"""The delay before something is tried again."""

from __future__ import annotations

import random

import msgspec

from shardq.settings import check_number

__all__ = ["Backoff"]

_LONGEST = 7 * 86_400.0
_MAX_DOUBLINGS = 60


class Backoff(msgspec.Struct, frozen=True):
    """A delay that doubles from ``first`` seconds up to ``longest``. Half of it is random, to spread retries out."""

    first: float
    longest: float

    def __post_init__(self) -> None:
        check_number("retry_delay", self.first, 0.0, _LONGEST)
        check_number("max_retry_delay", self.longest, 0.0, _LONGEST)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number, counted from 1."""
        doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * random.uniform(0.5, 1.0)
