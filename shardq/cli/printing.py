"""Writing to stdout and stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

__all__ = ["many", "note", "print_columns", "print_json", "print_line"]


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout."""
    print_line(msgspec.json.encode(value))


def print_line(line: str | bytes) -> None:
    """Print one line on stdout. It is flushed only if stdout is a terminal."""
    stream = sys.stdout.buffer
    stream.write((line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line) + b"\n")
    if sys.stdout.isatty():
        stream.flush()


def print_columns(rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns on stdout. Numbers are aligned to the right."""
    cells = [[(_text(cell), isinstance(cell, int | float)) for cell in row] for row in rows]
    widths = [max(len(row[column][0]) for row in cells) for column in range(len(cells[0]))] if cells else []
    for row in cells:
        aligned = [
            text.rjust(width) if number else text.ljust(width)
            for (text, number), width in zip(row, widths, strict=True)
        ]
        print_line("  ".join(aligned).rstrip())


def many(count: int, noun: str) -> str:
    """Write a number with its noun: ``1 message``, ``2,000 messages``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def note(text: str) -> None:
    """Print a line for people, on stderr."""
    click.echo(text, err=True)


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
