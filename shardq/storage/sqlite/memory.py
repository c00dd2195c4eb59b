"""``memory://`` and ``memory://name``: queues that live as long as those who use them. For tests and notebooks.

They are in an SQLite file, in a temporary folder that goes with the last store on it, or with this process. So all that
holds on SQLite holds here. A forked child shares its parent's.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

import msgspec

from shardq.base.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.per_process import OwnLock
from shardq.storage.requests import Finding
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.store import Store

__all__ = ["MemoryStore", "open_memory"]


class _Folder:
    """A temporary folder, which is removed when nothing refers to this any more, or with the process that made it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="shardq-memory-"))
        weakref.finalize(self, _remove, self.path, os.getpid())


_folders: weakref.WeakValueDictionary[str, _Folder] = weakref.WeakValueDictionary()
"""By name: two clients of this process meet nowhere else."""

_lock = OwnLock()


def open_memory(url: str, clock: Clock) -> Store:
    """Open the store of that name, or a new one without a name. Raises InvalidSetting."""
    name, _, options = url.removeprefix("memory://").partition("?")
    if not re.fullmatch(r"[\w.-]*", name):
        raise InvalidSetting(
            "the memory URL has a name that cannot be used: write memory:// or memory://name, with letters, digits, "
            "'_', '-' and '.'"
        )
    if options:
        raise InvalidSetting(
            "the memory URL has options, and memory:// takes none but signals=URL: leave them out"
        )
    return MemoryStore(name, clock)


class MemoryStore(SqliteStore):
    """An SQLite store in a folder that is removed when the last store on it is closed or forgotten."""

    capabilities = msgspec.structs.replace(SqliteStore.capabilities, transactions=False)

    def __init__(self, name: str, clock: Clock) -> None:
        self._folder: _Folder | None = _folder_of(name)
        super().__init__(str(self._folder.path / "queue.db"), clock=clock, synchronous="normal")

    def close(self) -> None:
        """Close the connections, and leave the folder."""
        super().close()
        self._folder = None

    def diagnose(self) -> tuple[Finding, ...]:
        """Return where it is: nothing about it can be out of order."""
        return (Finding("memory", True, f"{self.session.path}, until the end of this process"),)


def _folder_of(name: str) -> _Folder:
    with _lock.plain:
        folder = _folders.get(name) or _Folder()
        if name:
            _folders[name] = folder
        return folder


def _remove(path: Path, process: int) -> None:
    if process == os.getpid():  # a forked child leaves it to its parent
        shutil.rmtree(path, ignore_errors=True)
