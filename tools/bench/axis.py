"""What grows, and how far."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .stores.load import Load

CLAIMS = 40
BODIES_BYTES = 64_000_000  # of all messages with large bodies


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """Loads that differ in one thing; ``seconds`` for all of them. ``comparable``: their claims are equally large."""

    name: str
    value: Callable[[Load], int]
    loads: tuple[Load, ...]
    seconds: float
    comparable: bool = True


def axes(*, quick: bool) -> tuple[Axis, ...]:
    """Messages 10^4 to 10^7, shards 1 to 1,000, producers and consumers 1 to 8, bodies 100 B to 1 MB; less if quick."""
    usual = 10_000 if quick else 50_000
    powers, batch = (range(3, 6), 100) if quick else (range(4, 8), 500)
    shards = (1, 10, 100) if quick else (1, 10, 100, 1_000)
    processes = (1, 2, 4) if quick else (1, 2, 4, 8)
    sizes = (100, 10_000, 1_000_000) if quick else (100, 1_000, 10_000, 100_000, 1_000_000)
    seconds = 20.0 if quick else 60.0
    return (
        Axis(
            name="messages",
            value=lambda load: load.messages,
            loads=tuple(Load(messages=10**power, batch=batch, claims=CLAIMS) for power in powers),
            seconds=seconds if quick else 900,  # 10^7 take Cassandra three minutes
        ),
        Axis(
            name="shards",
            value=lambda load: load.shards,
            loads=tuple(Load(messages=usual, shards=count, claims=CLAIMS) for count in shards),
            seconds=seconds,
        ),
        Axis(
            name="producers and consumers",
            value=lambda load: load.processes,
            loads=tuple(Load(messages=usual * count, processes=count, claims=CLAIMS) for count in processes),
            seconds=seconds,
        ),
        Axis(
            name="bytes of a body",
            value=lambda load: load.body_bytes,
            loads=tuple(_bodies(usual, size) for size in sizes),
            seconds=seconds,
            comparable=False,
        ),
    )


def _bodies(usual: int, size: int) -> Load:
    messages = min(usual, BODIES_BYTES // size)
    return Load(messages=messages, body_bytes=size, batch=min(500, messages // 4), claims=CLAIMS // 2)
