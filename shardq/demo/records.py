"""What the processes of a run write down while they work, and reading it back.

Each process has files of its own: a line of JSON for every flight worked, every ack and every send.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

__all__ = [
    "Ack",
    "Harvest",
    "Kill",
    "Record",
    "RecordFile",
    "Result",
    "Sent",
    "Tally",
    "WorkerRecords",
    "read_harvest",
    "read_kill",
    "read_records",
    "write_kill",
]

KILL = "kill.json"


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
    """A batch that was acked, and how many of its messages were not because their lease had expired."""

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


class Kill(msgspec.Struct, frozen=True):
    """The worker that was killed, when in seconds since 1970, and how many messages it held."""

    place: int
    at: float
    held: int


class WorkerRecords(msgspec.Struct, frozen=True):
    """What one worker process wrote: its results, and its acks by the number of the batch."""

    results: list[Result]
    acks: dict[int, Ack]


class Harvest(msgspec.Struct, frozen=True):
    """The records of all producers and of all worker processes."""

    sent: list[Sent]
    workers: list[WorkerRecords]

    def results(self) -> Iterator[Result]:
        """Every result of every worker."""
        for worker in self.workers:
            yield from worker.results


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


def read_harvest(folder: Path) -> Harvest:
    """The records of a run that is over."""
    sent = [record for path in sorted(folder.glob("sent-*.jsonl")) for record in read_records(path, Sent)]
    names = sorted(path.name for path in folder.glob("results-*.jsonl"))
    return Harvest(sent, [_worker(folder, name) for name in names])


def _worker(folder: Path, name: str) -> WorkerRecords:
    acks = read_records(folder / name.replace("results", "acks"), Ack)
    return WorkerRecords(read_records(folder / name, Result), {ack.batch: ack for ack in acks})


def write_kill(folder: Path, kill: Kill) -> bool:
    """Write down that a worker is killed; False when another one was before."""
    draft = folder / f"{KILL}.{os.getpid()}"
    draft.write_bytes(msgspec.json.encode(kill))
    try:
        os.link(draft, folder / KILL)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def read_kill(folder: Path) -> Kill | None:
    """The worker that was killed, if one was."""
    with suppress(FileNotFoundError):
        return msgspec.json.decode((folder / KILL).read_bytes(), type=Kill)
    return None


class Tally:
    """Counts that the processes of a run share. Each is the length of a file, to which every process appends.

    There is no lock in it: a process that is killed leaves none behind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, number: int) -> int:
        """Add to a count; returns what it is then, or more."""
        with (self._folder / f"{name}.count").open("ab", buffering=0) as file:
            file.write(b"." * number)
        return self.count(name)

    def count(self, name: str) -> int:
        """What was added so far."""
        with suppress(FileNotFoundError):
            return (self._folder / f"{name}.count").stat().st_size
        return 0
