"""A disk with a cache: what is certain to be on it, what may be, and images of it after a cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import dirname
from typing import TypeAlias

import msgspec

from .recording import Change, Kind

__all__ = ["Disk", "everything", "nothing", "some"]

# How many of so many versions of a sector, a size or a folder reached the disk.
Choice: TypeAlias = Callable[[int], int]


def nothing(_: int) -> int:
    """Drop everything that was not synced."""
    return 0


def everything(versions: int) -> int:
    """Keep everything, as when no power was cut."""
    return versions


def some(chance: random.Random) -> Choice:
    """Keep of each sector what it was at some moment since it was synced, regardless of the other sectors."""
    share = chance.choice([0.1, 0.5, 0.9])
    return lambda versions: versions if chance.random() < share else chance.randint(0, versions)


class _Write(msgspec.Struct, frozen=True):
    at: int
    data: bytes


class _Size(msgspec.Struct, frozen=True):
    size: int


class _File:
    """What was synced of a file, and the changes since."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[_Write | _Size] = []
        self._begun: dict[int, int] = {}

    def begin(self, sync: int) -> None:
        self._begun[sync] = len(self.pending)

    def end(self, sync: int) -> None:
        """Take what there was when the sync began for synced."""
        done = self._begun.pop(sync, 0)
        for change in self.pending[:done]:
            _apply(self.synced, change)
        del self.pending[:done]
        self._begun = {other: max(0, count - done) for other, count in self._begun.items()}

    def image(self, choose: Choice, sector: int) -> bytes:
        """Return what a cut leaves: each sector, and the size, as it was at some moment since the last sync."""
        if not self.pending:
            return bytes(self.synced)
        sizes, pieces = self._history(sector)
        size = sizes[choose(len(sizes) - 1)]
        content = bytearray(self.synced[:size].ljust(size, b"\0"))
        for changes in pieces.values():
            for at, data in changes[: choose(len(changes))]:
                kept = data[: max(0, size - at)]
                content[at : at + len(kept)] = kept
        return bytes(content)

    def _history(self, sector: int) -> tuple[list[int], dict[int, list[tuple[int, bytes]]]]:
        """Return the sizes that the file had since it was synced, and the changes of each sector."""
        sizes = [len(self.synced)]
        pieces: dict[int, list[tuple[int, bytes]]] = {}
        longest = len(self.synced)
        for change in self.pending:
            if isinstance(change, _Size):
                sizes.append(change.size)
                write = _Write(change.size, bytes(max(0, longest - change.size)))
            else:
                end = change.at + len(change.data)
                sizes.append(max(sizes[-1], end))
                longest = max(longest, end)
                write = change
            for number, piece in _cut(write, sector):
                pieces.setdefault(number, []).append(piece)
        return sizes, pieces


def _cut(change: _Write, sector: int) -> Iterator[tuple[int, tuple[int, bytes]]]:
    at, end = change.at, change.at + len(change.data)
    while at < end:
        stop = min(end, (at // sector + 1) * sector)
        yield at // sector, (at, change.data[at - change.at : stop - change.at])
        at = stop


def _apply(content: bytearray, change: _Write | _Size) -> None:
    if isinstance(change, _Size):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(0, change.at - len(content))))
        content[change.at : change.at + len(change.data)] = change.data


class Disk:
    """Follows a recording.

    With ``ignores_syncs`` it is a disk that says it wrote what it did not. With ``names_last`` a file's sync also
    covers its names, as on ext4, XFS and Btrfs; POSIX asks for a sync of their folder.
    """

    def __init__(self, *, ignores_syncs: bool = False, names_last: bool = False) -> None:
        self._ignores_syncs = ignores_syncs
        self._names_last = names_last
        self._files: dict[int, _File] = {}
        self._folders: dict[int, str] = {}
        self._names: dict[str, _File] = {}  # as programs see them
        self._synced_names: dict[str, _File] = {}
        self._moves: list[tuple[str, _File | None]] = []  # since: the name, and what it stands for
        self._begun: dict[int, int] = {}

    def apply(self, change: Change) -> None:
        """Go one step on."""
        match change.kind:
            case Kind.NAME:
                self._name(change)
            case Kind.WRITE:
                self._files[change.file].pending.append(_Write(change.value, change.data))
            case Kind.TRUNCATE:
                self._files[change.file].pending.append(_Size(change.value))
            case Kind.UNLINK:
                self._move(change.name, None)
            case Kind.RENAME:
                old, new = change.names
                if old in self._names:
                    self._move(new, self._names[old])
                    self._move(old, None)
            case Kind.LINK:
                self._move(change.name, self._files[change.file])
            case Kind.SYNC_BEGIN | Kind.SYNC_END if not self._ignores_syncs:
                self._sync(change)
            case _:
                pass

    def image(self, choose: Choice, sector: int) -> dict[str, bytes]:
        """Return the files that a cut at this moment leaves."""
        names = dict(self._synced_names)
        for name, file in self._moves[: choose(len(self._moves))]:
            _set(names, name, file)
        return {name: file.image(choose, sector) for name, file in names.items()}

    def write(self, folder: Path, choose: Choice, sector: int) -> None:
        """Make the files of an image."""
        for name, content in self.image(choose, sector).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _name(self, change: Change) -> None:
        if change.value:
            self._folders[change.file] = change.name
        elif change.name not in self._names:
            self._files[change.file] = _File()
            self._folders.pop(change.file, None)
            self._move(change.name, self._files[change.file])
        elif change.file not in self._files:
            raise ValueError(f"{change.name} is another file than the one that was recorded")

    def _move(self, name: str, file: _File | None) -> None:
        _set(self._names, name, file)
        self._moves.append((name, file))

    def _sync(self, change: Change) -> None:
        folder, file = self._folders.get(change.file), self._files.get(change.file)
        if folder is None and file is not None:
            (file.begin if change.kind is Kind.SYNC_BEGIN else file.end)(change.value)
        if folder is None and not self._names_last:
            return
        if change.kind is Kind.SYNC_BEGIN:
            self._begun[change.value] = len(self._moves)
            return
        done = self._begun.pop(change.value)
        if folder is None:
            own = {name for name, moved in self._moves[:done] if moved is file}
            self._sync_names(own.__contains__, done)
        else:
            self._sync_names(lambda name: dirname(name) == folder, done)

    def _sync_names(self, covered: Callable[[str], bool], done: int) -> None:
        rest: list[tuple[str, _File | None]] = []
        for name, file in self._moves[:done]:
            if covered(name):
                _set(self._synced_names, name, file)
            else:
                rest.append((name, file))
        dropped = done - len(rest)
        self._moves[:done] = rest
        self._begun = {sync: max(0, count - dropped) for sync, count in self._begun.items()}


def _set(names: dict[str, _File], name: str, file: _File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file
