"""The recorder below other processes, and what it wrote down."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import msgspec

__all__ = ["Change", "Kind", "Recorder", "read_log"]

_SOURCES = [str(Path(__file__).with_name(name)) for name in ("recorder.c", "mapped_memory.c")]
_HEAD = struct.Struct("=IIQQQ")


class Kind(IntEnum):
    """What happened; the values are the recorder's."""

    NAME = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC_BEGIN = 4
    SYNC_END = 5
    UNLINK = 6
    RENAME = 7
    LINK = 8


class Change(msgspec.Struct, frozen=True):
    """One thing that happened to a file."""

    kind: Kind
    file: int
    value: int  # WRITE: the offset; TRUNCATE: the size; SYNC_*: which one; NAME: 1 for a folder
    data: bytes
    at: int = 0  # microseconds of the machine's own clock

    @property
    def name(self) -> str:
        """Below the folder, of NAME, UNLINK and LINK."""
        return self.data.decode()

    @property
    def names(self) -> tuple[str, str]:
        """The old and the new name, of RENAME."""
        old, new = self.data.decode().split("\0")
        return old, new


class Recorder:
    """Builds the library that records, and says how to start processes on it."""

    def __init__(self, scratch: Path) -> None:
        self.folder = (scratch / "data").resolve()
        self.log = (scratch / "recording").resolve()
        self._library = (scratch / "recorder.so").resolve()
        self.folder.mkdir(parents=True)
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), *_SOURCES, "-ldl"]
        subprocess.run(command, check=True)
        self.as_libc = scratch.resolve() / "as-libc"  # for who looks libc up by its name
        self.as_libc.mkdir()
        (self.as_libc / "libc.so").symlink_to(self._library)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process whose changes of the folder are recorded."""
        return os.environ | {
            "LD_PRELOAD": str(self._library),
            "POWER_LOSS_FOLDER": str(self.folder),
            "POWER_LOSS_LOG": str(self.log),
        }

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        """Record below every process that is started meanwhile."""
        ours = dict(os.environ)
        os.environ.update(self.environment)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(ours)


def read_log(log: Path) -> Iterator[Change]:
    """Read what was recorded, in order."""
    with log.open("rb") as file:
        while head := file.read(_HEAD.size):
            length, kind, number, value, at = _HEAD.unpack(head)
            yield Change(Kind(kind), number, value, file.read(length), at)
