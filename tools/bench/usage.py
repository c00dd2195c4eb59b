"""What a queue takes of the machine: processor time and room on the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil


class Usage(msgspec.Struct, frozen=True):
    """``processes`` work for the queue beside this one, with all their children; its files are in ``folders``.

    ``settle`` makes the server write to its files what it would write there later anyway.
    """

    processes: tuple[int, ...] = ()
    folders: tuple[Path, ...] = ()
    settle: Callable[[], None] | None = None

    def own_seconds(self) -> float:
        """Processor time of this process so far."""
        return time.process_time()

    def other_seconds(self) -> float:
        """Processor time of the other processes so far; that of a child that ended is in its parent's."""
        return sum(_seconds(process) for process in _trees(self.processes))

    def resident_bytes(self) -> int:
        """The memory of the other processes that is in use now; pages that they share count for each."""
        return sum(_resident(process) for process in _trees(self.processes))

    def settled_file_bytes(self) -> int:
        """The same as :meth:`file_bytes`, once the server has settled; not for each of many looks."""
        if self.settle is not None:
            self.settle()
        return self.file_bytes()

    def file_bytes(self) -> int:
        """What the files take on the disk now, in blocks: a file that was made longer in advance counts as written."""
        return sum(_allocated(path) for folder in self.folders for path in folder.rglob("*"))


def children() -> set[int]:
    """The processes that this one has started and that still run."""
    return {process.pid for process in psutil.Process().children()}


def _trees(roots: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in roots:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            yield from [process, *process.children(recursive=True)]


def _seconds(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0


def _allocated(path: Path) -> int:
    with suppress(FileNotFoundError):
        return 0 if path.is_dir() else path.stat().st_blocks * 512
    return 0
