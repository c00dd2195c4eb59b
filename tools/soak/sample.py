"""What is seen of a soak at one moment, and the file of all of them: JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

__all__ = ["Latency", "Sample", "append", "read"]


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds from the moment at which a message was to be sent to its receipt, of one sample's messages."""

    p50: float
    p99: float
    p999: float
    most: float


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """``at`` in seconds from the start, memory and files in bytes, messages counted from the start.

    ``client_bytes`` by process. None stands for what cannot be seen: a server that was given, a store without
    tombstones, no message since the last sample. ``machine_load`` is the number of processes that want a processor,
    a mean of the last minute: what else the machine did shows in it.
    """

    at: float
    sent: int
    received: int
    backlog: int
    latency: Latency | None
    client_bytes: dict[str, int]
    server_bytes: int | None
    file_bytes: int | None
    tombstones: float | None
    machine_load: float | None = None


def append(sample: Sample, file: Path) -> None:
    """Write it at the end, at once: a soak that is broken off leaves what it has seen."""
    with file.open("ab") as lines:
        lines.write(msgspec.json.encode(sample) + b"\n")


def read(file: Path) -> list[Sample]:
    """All of them, in order."""
    lines: Iterable[bytes] = file.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Sample) for line in lines]
