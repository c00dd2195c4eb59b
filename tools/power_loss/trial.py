"""A load below which everything is recorded, and the cuts that are made of the recording."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from shardq.clock import SystemClock

from .checking import check
from .client import QUEUE
from .disk import Disk, everything, nothing, some
from .marks import FOLDER, Fate, Ledger
from .recording import Change, Kind, Recorder, read_log

__all__ = ["Cut", "Recording", "cut", "record"]

ROOT = Path(__file__).parents[2]
_NAME = "queue.db"
_SECTORS = (512, 4096)


class Recording(msgspec.Struct, frozen=True):
    """What a load did."""

    log: Path
    folder: Path
    ended_at: int
    changes: int
    syncs: int
    confirmed: int


class Cut(msgspec.Struct, frozen=True):
    """One cut, and what was wrong after it."""

    at: int
    sector: int
    mode: str
    confirmed: int  # sends, acks and moves that clients had been told of
    offences: tuple[str, ...]


def record(scratch: Path, *, messages: int, seed: int, options: str = "", generations: int = 2) -> Recording:
    """Run producers and consumers, in generations that each close the file, and record what they do."""
    recorder = Recorder(scratch)
    url = f"sqlite:///{recorder.folder / _NAME}{options}"
    _run([[sys.executable, "-c", _CREATE, url, QUEUE]], recorder)
    for generation in range(generations):
        each = str(messages // (2 * generations))
        commands = [
            _command(role, f"{generation}{number}", url, recorder, each, seed) for role, number in _CLIENTS
        ]
        _run(commands, recorder)
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
    disk, ledger, changes, syncs = Disk(), Ledger(), 0, 0
    marks: set[int] = set()
    for change in read_log(recorder.log):
        _follow(disk, ledger, marks, change)
        changes += 1
        syncs += change.kind is Kind.SYNC_END
    for name, content in disk.image(everything, 512).items():
        if (recorder.folder / name).read_bytes() != content:
            raise RuntimeError(f"{name} was changed in a way that is not recorded")
    confirmed = len(ledger.those(Fate.SENT, Fate.ACKED, Fate.DEAD))
    return Recording(recorder.log, recorder.folder, SystemClock().now(), changes, syncs, confirmed)


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
    recording: Recording, scratch: Path, *, cuts: int, seed: int, ignores_syncs: bool = False
) -> list[Cut]:
    """Cut the power at random moments, half of them just after a client was told something."""
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(1, recording.changes), cuts))
    disk, ledger, marks = Disk(ignores_syncs=ignores_syncs), Ledger(), set[int]()
    done: list[Cut] = []
    waits = False
    for number, change in enumerate(read_log(recording.log)):
        told = _follow(disk, ledger, marks, change)
        due = len(done) < len(moments) and moments[len(done)] <= number
        if due and (told or not (waits := waits or chance.random() < 0.5)):
            waits = False
            done.append(_cut_now(disk, ledger, number, recording, scratch / "image", chance))
    return done


def _cut_now(
    disk: Disk, ledger: Ledger, number: int, recording: Recording, folder: Path, chance: random.Random
) -> Cut:
    mode, choose = chance.choice([("nothing", nothing), ("some", some(chance)), ("some", some(chance))])
    sector = chance.choice(_SECTORS)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    disk.write(folder, choose, sector)
    if chance.random() < 0.5:  # the index of the log is not synced: anything may be in it
        (folder / f"{_NAME}-shm").write_bytes(chance.randbytes(32768))
    offences = check(folder / _NAME, ledger, recording.ended_at)
    confirmed = len(ledger.those(Fate.SENT, Fate.ACKED, Fate.DEAD))
    return Cut(number, sector, mode, confirmed, tuple(offences))
