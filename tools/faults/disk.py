"""A small file system of its own, which can be full."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

__all__ = ["Disk"]


class Disk:
    """A tmpfs, which can be mounted by a process that is in a user and mount namespace of its own, without root."""

    def __init__(self, folder: Path, megabytes: int = 192) -> None:
        self.folder = folder
        self._size = megabytes << 20
        self._filler = folder / "filler"

    def mount(self) -> bool:
        """False where this process may not mount: then nothing can be filled."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.environ.get("SHARDQ_FAULTS_OWN_MOUNTS"):
            return False
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=False, capture_output=True)

    def fill(self) -> None:
        """Leave no byte free."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)
