"""The recorder below other processes, and what it wrote down."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import msgspec

__all__ = ["Change", "Kind", "Recorder", "read_log"]

_SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = struct.Struct("=IIQQ")


class Kind(IntEnum):
    """What happened; the values are the recorder's."""

    NAME = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC_BEGIN = 4
    SYNC_END = 5
    UNLINK = 6
    RENAME = 7


class Change(msgspec.Struct, frozen=True):
    """One thing that happened to a file."""

    kind: Kind
    file: int
    value: int  # WRITE: the offset; TRUNCATE: the size; SYNC_*: which one; NAME: 1 for a folder
    data: bytes

    @property
    def name(self) -> str:
        """Below the folder, of NAME and UNLINK."""
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
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process whose changes of the folder are recorded."""
        return os.environ | {
            "LD_PRELOAD": str(self._library),
            "POWER_LOSS_FOLDER": str(self.folder),
            "POWER_LOSS_LOG": str(self.log),
        }


def read_log(log: Path) -> Iterator[Change]:
    """Read what was recorded, in order."""
    with log.open("rb") as file:
        while head := file.read(_HEAD.size):
            length, kind, number, value = _HEAD.unpack(head)
            yield Change(Kind(kind), number, value, file.read(length))
