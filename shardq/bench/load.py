"""What a measurement is given to do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import msgspec

__all__ = ["Load", "bodies"]

DIFFERENT_BODIES = 64


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a measurement; each reads what concerns it.

    ``messages`` in all, ``batch`` for each bulk read, ``rate`` in messages per second, ``linger`` and ``seconds``
    in seconds.
    """

    messages: int = 0
    body_bytes: int = 512
    shards: int = 8
    processes: int = 1
    threads: int = 1
    batch: int = 500
    linger: float = 0.0
    rate: float = 0.0
    seconds: float = 0.0
    backlog: int = 0
    consumed: int = 0
    claims: int = 0
    singles: bool = False
    history: bool = False


def bodies(count: int, size: int) -> Iterator[bytes]:
    """So many bodies of random bytes, the same in every run; some dozens of different ones, in turn."""
    source = random.Random(size)
    different = [source.randbytes(size) for _ in range(min(count, DIFFERENT_BODIES))]
    return itertools.islice(itertools.cycle(different), count)
