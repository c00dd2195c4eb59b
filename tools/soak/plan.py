"""What a soak is given to do."""

from __future__ import annotations

import msgspec

__all__ = ["Plan"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``rate`` in messages per second of all producers together, durations in seconds."""

    store: str
    seconds: float
    rate: float
    body_bytes: int = 512
    producers: int = 2
    consumers: int = 2
    sample_seconds: float = 10.0
