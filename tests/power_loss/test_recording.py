"""The recorder sees what a process writes, however it writes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.power_loss.disk import Disk, everything, nothing
from tools.power_loss.recording import Recorder, read_log

MAPPED = """
import mmap, os, sys
folder = sys.argv[1]
file = os.open(folder + "/log", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 8192)
memory = mmap.mmap(file, 8192)
os.close(file)
memory[10:14] = b"safe"
memory.flush()
memory[5000:5004] = b"late"
memory.close()
"""


LISTED = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
libc.fdopendir.restype, libc.closedir.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
folder = os.open(sys.argv[1], os.O_RDONLY)
libc.closedir(libc.fdopendir(folder))
one, other = socket.socketpair()
assert one.fileno() == folder
os.write(folder, b"said")
"""


def disk_after(program: str, folder: Path, *, names_last: bool) -> Disk:
    if sys.platform != "linux" or shutil.which("cc") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("the recorder needs Linux and a C compiler")
    recorder, disk = Recorder(folder), Disk(names_last=names_last)
    subprocess.run(
        [sys.executable, "-c", program, str(recorder.folder)], env=recorder.environment, check=True
    )
    for change in read_log(recorder.log):
        disk.apply(change)
    return disk


def test_what_is_written_through_mapped_memory_lasts_when_it_was_synced(tmp_path: Path) -> None:
    disk = disk_after(MAPPED, tmp_path, names_last=True)
    assert disk.image(nothing, 512)["log"] == bytes(10) + b"safe" + bytes(8178)
    kept = disk.image(everything, 512)["log"]
    assert kept == bytes(10) + b"safe" + bytes(4986) + b"late" + bytes(3188)
    assert kept == (tmp_path / "data" / "log").read_bytes()


def test_a_new_file_may_be_gone_whose_folder_was_not_synced(tmp_path: Path) -> None:
    disk = disk_after(MAPPED, tmp_path, names_last=False)
    assert disk.image(nothing, 512) == {}


def test_what_is_said_to_a_socket_is_no_change_of_the_folder_whose_descriptor_it_has(tmp_path: Path) -> None:
    """A folder that was opened to be listed is closed by another function than a file."""
    assert disk_after(LISTED, tmp_path, names_last=True).image(everything, 512) == {}
