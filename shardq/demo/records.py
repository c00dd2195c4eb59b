"""What the processes write down while they work: a line of JSON for every flight worked, every ack and every send."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

__all__ = ["Ack", "Record", "RecordFile", "Result", "Sent", "read_records"]


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A flight that was worked. Times are seconds since 1970, delays minutes."""

    row: int
    carrier: str
    dep_delay: int | None
    arr_delay: int | None
    made_up: int | None  # minutes made up between departure and arrival
    deliveries: int
    sent_at: float
    received_at: float
    batch: int


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that was acked, and how many of its messages were not, their lease having run out."""

    batch: int
    acked_at: float
    acked: int
    lost: int


class Sent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages of one bulk send that went to one shard, and when the store had confirmed them."""

    sent_at: float
    time_shard: int
    shard: int
    messages: int


Record = Result | Ack | Sent
T = TypeVar("T", Result, Ack, Sent)


class RecordFile:
    """Appends records to a file of one process. They have left the process when a call returns: a kill loses none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def append(self, records: Iterable[Record]) -> None:
        """Write records, a line each."""
        left = memoryview(self._encoder.encode_lines(records))
        while left:
            left = left[self._file.write(left) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_records(path: Path, kind: type[T]) -> list[T]:
    """The records of a file; a last line that a killed process did not finish is left out, a missing file is empty."""
    if not path.exists():
        return []
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    return msgspec.json.Decoder(kind).decode_lines(complete)
