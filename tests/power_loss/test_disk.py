"""The disk of the power cuts: what is synced is there, and everything else may be."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tools.power_loss.disk import Disk, everything, nothing, some
from tools.power_loss.marks import Fate, Ledger
from tools.power_loss.recording import Change, Kind

FOLDER, FILE = 1, 2


def disk_of(*changes: tuple[Kind, int, int, bytes], **options: bool) -> Disk:
    disk = Disk(**options)
    for change in (
        (Kind.NAME, FOLDER, 1, b""),
        (Kind.NAME, FILE, 0, b"queue.db"),
        (Kind.SYNC_BEGIN, FOLDER, 1, b""),
        (Kind.SYNC_END, FOLDER, 1, b""),
        *changes,
    ):
        disk.apply(Change(*change))
    return disk


def images(disk: Disk, choose: Callable[[int], int] | None = None) -> set[bytes]:
    chance = random.Random(1)
    return {disk.image(choose or some(chance), 4)["queue.db"] for _ in range(300)}


def synced(*changes: tuple[Kind, int, int, bytes]) -> list[tuple[Kind, int, int, bytes]]:
    return [*changes, (Kind.SYNC_BEGIN, FILE, 7, b""), (Kind.SYNC_END, FILE, 7, b"")]


WRITE = (Kind.WRITE, FILE, 0, b"aaaabbbb")


def test_what_was_synced_is_there_whatever_is_dropped() -> None:
    assert images(disk_of(*synced(WRITE)), nothing) == {b"aaaabbbb"}
    assert images(disk_of(*synced(WRITE))) == {b"aaaabbbb"}


def test_what_was_not_synced_may_be_there_in_any_sectors() -> None:
    disk = disk_of(*synced(WRITE), (Kind.WRITE, FILE, 0, b"ccccdddd"))
    assert images(disk) == {b"aaaabbbb", b"ccccbbbb", b"aaaadddd", b"ccccdddd"}
    assert images(disk, nothing) == {b"aaaabbbb"}
    assert images(disk, everything) == {b"ccccdddd"}


def test_a_sector_that_was_written_twice_is_as_it_was_at_some_moment() -> None:
    disk = disk_of(*synced(WRITE), (Kind.WRITE, FILE, 1, b"cc"), (Kind.WRITE, FILE, 2, b"d"))
    assert images(disk) == {b"aaaabbbb", b"accabbbb", b"acdabbbb"}


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    during = (Kind.WRITE, FILE, 0, b"cccc")
    disk = disk_of(WRITE, (Kind.SYNC_BEGIN, FILE, 7, b""), during, (Kind.SYNC_END, FILE, 7, b""))
    assert images(disk, nothing) == {b"aaaabbbb"}
    assert images(disk) == {b"aaaabbbb", b"ccccbbbb"}


def test_a_disk_that_ignores_syncs_may_lose_everything() -> None:
    disk = disk_of(*synced(WRITE), ignores_syncs=True)
    assert disk.image(nothing, 4) == {}


def test_a_file_that_was_cut_short_may_have_any_of_its_sizes() -> None:
    disk = disk_of(*synced(WRITE), (Kind.TRUNCATE, FILE, 4, b""))
    assert {len(image) for image in images(disk)} == {4, 8}
    assert images(disk_of(*synced(WRITE, (Kind.TRUNCATE, FILE, 4, b"")))) == {b"aaaa"}


def test_names_last_when_their_folder_was_synced() -> None:
    new = (Kind.NAME, 3, 0, b"queue.db-wal")
    assert set(disk_of(new).image(nothing, 4)) == {"queue.db"}
    gone = disk_of((Kind.UNLINK, 0, 0, b"queue.db"))
    assert set(gone.image(nothing, 4)) == {"queue.db"}
    assert set(gone.image(everything, 4)) == set()


@pytest.mark.parametrize("choose", [nothing, everything])
def test_a_file_moved_over_another_is_one_or_the_other(choose: Callable[[int], int]) -> None:
    other = [(Kind.NAME, 3, 0, b"new"), (Kind.WRITE, 3, 0, b"zzzz")]
    other += [(Kind.SYNC_BEGIN, 3, 8, b""), (Kind.SYNC_END, 3, 8, b"")]
    disk = disk_of(*synced(WRITE), *other, (Kind.RENAME, 0, 0, b"new\0queue.db"))
    assert images(disk, choose) == {b"aaaabbbb" if choose is nothing else b"zzzz"}


def test_what_clients_were_told_late_takes_nothing_back() -> None:
    ledger = Ledger()
    for line in (b"sending a b\n", b"acking a\n", b"acked a\n", b"sent a b\n"):
        ledger.read(line)
    assert ledger.those(Fate.ACKED) == {"a"}
    assert ledger.those(Fate.SENT) == {"b"}


def test_where_names_last_a_sync_of_a_file_keeps_its_own_names_only() -> None:
    new = [(Kind.NAME, 3, 0, b"log"), (Kind.NAME, 4, 0, b"other")]
    disk = disk_of(*new, (Kind.SYNC_BEGIN, 3, 8, b""), (Kind.SYNC_END, 3, 8, b""), names_last=True)
    assert set(disk.image(nothing, 4)) == {"queue.db", "log"}
    disk.apply(Change(Kind.UNLINK, 0, 0, b"log"))
    assert set(disk.image(nothing, 4)) == {"queue.db", "log"}
    assert set(disk.image(everything, 4)) == {"queue.db", "other"}
