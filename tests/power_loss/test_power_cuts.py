"""After a power cut at any moment, SQLite has what clients were told of; a disk that lies is found out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.power_loss.disk import Disk, everything, nothing
from tools.power_loss.recording import Recorder, read_log
from tools.power_loss.sqlite_store import SqliteStore
from tools.power_loss.trial import Lies, Recording, cut, record

pytestmark = pytest.mark.xdist_group("test_power_cuts")

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

AS_SERVERS_WRITE = """
import ctypes, os, sys
os.chdir(sys.argv[1])
file = os.open("./log", os.O_RDWR | os.O_CREAT)
os.pwritev(file, [b"in ", b"parts"], 4)
os.posix_fallocate(file, 0, 64)
os.fsync(file)
os.link("log", "same")
os.truncate("log", 6)
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
stream = libc.fopen(b"stream", b"w")
libc.fputs(b"by libc itself", ctypes.c_void_p(stream))
libc.fclose(ctypes.c_void_p(stream))
"""


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if sys.platform != "linux" or shutil.which("cc") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("the recorder needs Linux and a C compiler")


@pytest.fixture(scope="module")
def recording(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(
        SqliteStore(), tmp_path_factory.mktemp("load") / "load", messages=120, seed=1, generations=1
    )


def test_after_a_cut_every_promise_is_kept(recording: Recording, tmp_path: Path) -> None:
    cuts = cut(SqliteStore(), recording, tmp_path, cuts=12, seed=1)
    assert len(cuts) >= 10
    assert [each for each in cuts if each.offences] == []
    assert max(each.confirmed for each in cuts) > 0


@pytest.mark.long
def test_a_disk_that_ignores_syncs_is_found_out(recording: Recording, tmp_path: Path) -> None:
    cuts = cut(SqliteStore(), recording, tmp_path, cuts=6, seed=2, lies=Lies(ignores_syncs=True))
    assert any("lost" in offence or "corrupt" in offence for each in cuts for offence in each.offences)


def test_a_disk_that_is_late_is_found_out_by_what_it_undoes(recording: Recording, tmp_path: Path) -> None:
    cuts = cut(SqliteStore(), recording, tmp_path, cuts=8, seed=3, lies=Lies(late=0.5))
    found = [offence for each in cuts for offence in each.offences]
    assert any("lost" in offence or "back" in offence for offence in found)
    assert not any("corrupt" in offence for offence in found)


def test_what_is_written_through_mapped_memory_lasts_when_it_was_synced(tmp_path: Path) -> None:
    recorder, disk = Recorder(tmp_path), Disk(names_last=True)
    command = [sys.executable, "-c", MAPPED, str(recorder.folder)]
    subprocess.run(command, env=recorder.environment, check=True)
    for change in read_log(recorder.log):
        disk.apply(change)
    assert disk.image(nothing, 512)["log"] == bytes(10) + b"safe" + bytes(8178)
    kept = disk.image(everything, 512)["log"]
    assert kept == bytes(10) + b"safe" + bytes(4986) + b"late" + bytes(3188)
    assert kept == (tmp_path / "data" / "log").read_bytes()


def test_relative_names_streams_links_and_writes_in_parts_are_recorded(tmp_path: Path) -> None:
    recorder, disk = Recorder(tmp_path), Disk(names_last=True)
    subprocess.run(
        [sys.executable, "-c", AS_SERVERS_WRITE, str(recorder.folder)], env=recorder.environment, check=True
    )
    for change in read_log(recorder.log):
        disk.apply(change)
    kept = disk.image(everything, 512)
    assert kept == {path.name: path.read_bytes() for path in recorder.folder.iterdir()}
    assert kept == {"log": bytes(4) + b"in", "same": bytes(4) + b"in", "stream": b"by libc itself"}
    assert disk.image(nothing, 512) == {"log": bytes(4) + b"in parts" + bytes(52)}
