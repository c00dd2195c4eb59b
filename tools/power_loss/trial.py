"""A load below which everything is recorded, and the cuts that are made of the recording."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from shardq.clock import SystemClock

from .client import QUEUE
from .disk import Disk, everything, nothing, some
from .marks import FOLDER, Fate, Ledger
from .recording import Change, Kind, Recorder, read_log

__all__ = ["Cut", "Recording", "Store", "cut", "record"]

ROOT = Path(__file__).parents[2]
_SECTORS = (512, 4096)


class Store(Protocol):
    """What is recorded and cut."""

    name: str
    url: str
    cut_from_the_start: bool

    def start(self, recorder: Recorder) -> None: ...
    def stop(self) -> None: ...
    def check(self, image: Path, ledger: Ledger, ended_at: int, junk: bytes) -> Iterator[str]: ...


class Recording(msgspec.Struct, frozen=True):
    """What a load did."""

    log: Path
    ended_at: int
    changes: int
    first_told: int  # the numbers of the first and the last change by which a client said what it does
    last_told: int
    syncs: int
    confirmed: int


class Cut(msgspec.Struct, frozen=True):
    """One cut, and what was wrong after it."""

    at: int
    sector: int
    mode: str
    confirmed: int  # sends, acks and moves that clients had been told of
    offences: tuple[str, ...]


def record(store: Store, scratch: Path, *, messages: int, seed: int, generations: int = 2) -> Recording:
    """Run producers and consumers, in generations that each close the store, and record what they do."""
    recorder = Recorder(scratch)
    store.start(recorder)
    try:
        _run([[sys.executable, "-c", _CREATE, store.url, QUEUE]], recorder)
        for generation in range(generations):
            each = str(messages // (2 * generations))
            commands = [
                _command(role, f"{generation}{number}", store.url, recorder, each, seed)
                for role, number in _CLIENTS
            ]
            _run(commands, recorder)
    finally:
        store.stop()
    return _summary(recorder)


_CLIENTS = (("producer", 0), ("producer", 1), ("consumer", 0), ("consumer", 1))
_CREATE = """
import sys, shardq
with shardq.connect(sys.argv[1]) as client:
    client.create_queue(sys.argv[2], shards=2, time_shards=2, max_deliveries=1000)
"""


def _command(role: str, number: str, url: str, recorder: Recorder, messages: str, seed: int) -> list[str]:
    name = f"{role}{number}"
    program = [sys.executable, "-m", "tools.power_loss.client"]
    return [*program, role, name, url, str(recorder.folder), messages, f"{seed}.{name}"]


def _run(commands: Iterable[list[str]], recorder: Recorder) -> None:
    running = [subprocess.Popen(command, env=recorder.environment, cwd=ROOT) for command in commands]
    failed = [process.wait() for process in running]
    if any(failed):
        raise RuntimeError(f"clients of the load failed: {failed}")


def _summary(recorder: Recorder) -> Recording:
    """Check that the recording is whole: with everything kept it gives the files that are there."""
    disk, ledger, marks = Disk(), Ledger(), set[int]()
    told: list[int] = []
    syncs, number = 0, 0
    for number, change in enumerate(read_log(recorder.log), start=1):
        if _follow(disk, ledger, marks, change):
            told = [*told[:1], number]
        syncs += change.kind is Kind.SYNC_END
    kept = disk.image(everything, 512)
    there = {
        path.relative_to(recorder.folder).as_posix() for path in recorder.folder.rglob("*") if path.is_file()
    }
    for name in there | set(kept):
        path = recorder.folder / name
        if not name.endswith("-shm") and (not path.exists() or path.read_bytes() != kept.get(name)):
            raise RuntimeError(f"{name} was changed in a way that is not recorded")
    confirmed = len(ledger.those(Fate.SENT, Fate.ACKED, Fate.DEAD))
    return Recording(recorder.log, SystemClock().now(), number, told[0], told[-1], syncs, confirmed)


def _follow(disk: Disk, ledger: Ledger, marks: set[int], change: Change) -> bool:
    """Go one step on; True when a client was told something."""
    if change.kind is Kind.NAME and change.name.startswith(f"{FOLDER}/"):
        marks.add(change.file)
    disk.apply(change)
    if change.kind is Kind.WRITE and change.file in marks:
        ledger.read(change.data)
        return True
    return False


def cut(
    store: Store, recording: Recording, scratch: Path, *, cuts: int, seed: int, ignores_syncs: bool = False
) -> list[Cut]:
    """Cut the power at random moments, half of them just after a client was told something."""
    chance = random.Random(seed)
    first = 1 if store.cut_from_the_start else recording.first_told
    moments = sorted(chance.sample(range(first, recording.changes), cuts))
    disk, ledger, marks = Disk(ignores_syncs=ignores_syncs), Ledger(), set[int]()
    done: list[Cut] = []
    waits = False
    for number, change in enumerate(read_log(recording.log)):
        told = _follow(disk, ledger, marks, change)
        due = len(done) < len(moments) and moments[len(done)] <= number
        waits = due and number < recording.last_told and (waits or chance.random() < 0.5)
        if due and (told or not waits):
            waits = False
            done.append(_cut_now(store, disk, ledger, number, recording, scratch / "image", chance))
    return done


def _cut_now(
    store: Store,
    disk: Disk,
    ledger: Ledger,
    number: int,
    recording: Recording,
    folder: Path,
    chance: random.Random,
) -> Cut:
    mode, choose = chance.choice([("nothing", nothing), ("some", some(chance)), ("some", some(chance))])
    sector = chance.choice(_SECTORS)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    disk.write(folder / "data", choose, sector)
    junk = chance.choice([b"", chance.randbytes(32768)])
    offences = tuple(store.check(folder, ledger, recording.ended_at, junk))
    confirmed = len(ledger.those(Fate.SENT, Fate.ACKED, Fate.DEAD))
    return Cut(number, sector, mode, confirmed, offences)
