"""A load below which everything is recorded, and the cuts that are made of the recording."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from shardq.base.clock import SystemClock

from .checking import Offence
from .client import QUEUE
from .disk import Disk, everything, nothing, some
from .marks import FOLDER, Fate, Ledger
from .recording import Change, Kind, Recorder, read_log

__all__ = ["Cut", "Lies", "Recording", "Store", "cut", "record"]

ROOT = Path(__file__).parents[2]
_SECTORS = (512, 4096)


class Store(Protocol):
    """What is recorded and cut."""

    name: str
    url: str
    window: int  # microseconds: what a cut may undo of what clients were told before it
    names_last: bool  # it relies on file systems whose files keep their names when they are synced
    cut_beyond_the_load: bool  # also before the first and after the last that a client was told

    def start(self, recorder: Recorder) -> None: ...
    def stop(self) -> None: ...
    def check(
        self, image: Path, ledger: Ledger, at: int, ended_at: int, junk: bytes
    ) -> Iterator[Offence]: ...


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
    undone: tuple[str, ...] = ()  # within the window
    undone_for: int = 0  # microseconds: the longest that a client had been told of what was undone


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
        disk.apply(change)
        if _tells(ledger, marks, change):
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


def _tells(ledger: Ledger, marks: set[int], change: Change) -> bool:
    """Take note of what a client was told; True when it was something."""
    if change.kind is Kind.NAME and change.name.startswith(f"{FOLDER}/"):
        marks.add(change.file)
    if change.kind is Kind.WRITE and change.file in marks:
        ledger.read(change.data, change.at)
        return True
    return False


class Lies(msgspec.Struct, frozen=True):
    """What is wrong with a disk, for a control in which losses must be found."""

    ignores_syncs: bool = False
    forgets_names: bool = False  # unless their folder was synced
    late: float = 0.0  # the share of the load that it is behind, in order, whatever it says


def cut(
    store: Store, recording: Recording, scratch: Path, *, cuts: int, seed: int, lies: Lies | None = None
) -> list[Cut]:
    """Cut the power at random moments, half of them just after a client was told something."""
    lies = lies or Lies()
    chance = random.Random(seed)
    first, last = recording.first_told, recording.last_told
    if store.cut_beyond_the_load:
        first, last = 1, recording.changes
    moments = sorted(chance.sample(range(first, last), cuts))
    ledger, marks = Ledger(), set[int]()
    disk = Disk(ignores_syncs=lies.ignores_syncs, names_last=store.names_last and not lies.forgets_names)
    behind: deque[Change] = deque()
    late = lies.late * (recording.last_told - recording.first_told)
    done: list[Cut] = []
    waits = False
    for number, change in enumerate(read_log(recording.log)):
        behind.append(change)
        if len(behind) > late:
            disk.apply(behind.popleft())
        told = _tells(ledger, marks, change)
        due = len(done) < len(moments) and moments[len(done)] <= number
        waits = due and number < recording.last_told and (waits or chance.random() < 0.5)
        if due and (told or not waits):
            waits = False
            image = _image(disk, scratch / "image", chance)
            done.append(_check(store, ledger, number, change.at, recording, image))
            _tell_progress(done, cuts)
    return done


class _Image(msgspec.Struct, frozen=True):
    folder: Path
    mode: str
    sector: int
    junk: bytes


def _image(disk: Disk, folder: Path, chance: random.Random) -> _Image:
    mode, choose = chance.choice([("nothing", nothing), ("some", some(chance)), ("some", some(chance))])
    sector = chance.choice(_SECTORS)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    disk.write(folder / "data", choose, sector)
    return _Image(folder, mode, sector, chance.choice([b"", chance.randbytes(32768)]))


def _check(store: Store, ledger: Ledger, number: int, at: int, recording: Recording, image: _Image) -> Cut:
    found = list(store.check(image.folder, ledger, at, recording.ended_at, image.junk))
    within = [each for each in found if each.undone is not None and each.undone <= store.window]
    confirmed = len(ledger.those(Fate.SENT, Fate.ACKED, Fate.DEAD))
    return Cut(
        number,
        image.sector,
        image.mode,
        confirmed,
        tuple(each.what for each in found if each not in within),
        tuple(each.what for each in within),
        max((each.undone or 0 for each in within), default=0),
    )


def _tell_progress(done: Sequence[Cut], cuts: int) -> None:
    for offence in done[-1].offences:
        print(f"cut {len(done)} of {cuts}: {offence}", file=sys.stderr)
    if len(done) % 10 == 0:
        print(f"{len(done)} of {cuts} cuts", file=sys.stderr)
