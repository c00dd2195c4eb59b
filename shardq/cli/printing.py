"""Writing to stdout and stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from shardq.base.texts import many
from shardq.cli.times import in_words

if TYPE_CHECKING:
    from shardq.worker import JsonLog

__all__ = [
    "columns",
    "log_option",
    "many",
    "note",
    "note_or_log",
    "print_columns",
    "print_json",
    "print_line",
    "print_message",
    "screen_width",
    "value_text",
]

_GAP = "  "
_LEAST = 12  # characters for which the last of some columns has room


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout."""
    print_line(msgspec.json.encode(value))


def print_line(line: str | bytes) -> None:
    """Print one line on stdout. It is flushed only if stdout is a terminal."""
    stream = sys.stdout.buffer
    stream.write((line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line) + b"\n")
    if sys.stdout.isatty():
        stream.flush()


def print_columns(rows: Iterable[Sequence[object]], *, most: int | None = None) -> None:
    """Print aligned columns on stdout. Numbers are aligned to the right.

    Where lines would have more than ``most`` characters, the last column is wrapped at its spaces. If it has no room,
    the first column is on separate lines, too. No word is cut. Without ``most``, lines fit a terminal; a pipe or a file
    gets one line for each row.
    """
    for line in columns(rows, most=most or _terminal_width()):
        print_line(line)


def print_message(row: str) -> None:
    """Print the id and the facts of a message: on one line, or on two in a terminal that is narrower than that."""
    most = _terminal_width()
    print_line(row if most is None or len(row) <= most else row.replace(_GAP, "\n" + _GAP, 1))


def columns(rows: Iterable[Sequence[object]], *, most: int | None = None) -> Iterator[str]:
    """Yield the lines that :func:`print_columns` prints."""
    from textwrap import wrap  # noqa: PLC0415 - most commands print no columns

    cells = [[(_text(cell), isinstance(cell, int | float)) for cell in row] for row in rows]
    widths = [max(len(text) for text, _ in column) for column in zip(*cells, strict=True)]
    begin = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)  # of the last column
    is_folded = most is not None and len(widths) > 1 and begin + min(widths[-1], _LEAST) > most
    begin -= widths[0] if is_folded else 0
    for row in cells:
        *lead, last = [
            text.rjust(width) if number else text.ljust(width)
            for (text, number), width in zip(row, widths, strict=True)
        ]
        if is_folded:
            yield lead[0].rstrip()
            lead[0] = ""
        if most is not None and begin + len(last) > most:
            width = max(most - begin, _LEAST)
            last, *others = wrap(last, width, break_long_words=False, break_on_hyphens=False) or [""]
        else:
            others = []
        yield _GAP.join([*lead, last]).rstrip()
        yield from (" " * begin + each for each in others)


def screen_width() -> int:
    """Return the columns of the terminal, or of COLUMNS; 80 where neither is known, as in most pipes."""
    from shutil import get_terminal_size  # noqa: PLC0415 - as above

    return get_terminal_size((80, 24)).columns


def _terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None when it is none."""
    return screen_width() if sys.stdout.isatty() else None


def value_text(value: object) -> str:
    """Return a value of a setting or a count for people. Each float is a duration: exact, and a long one in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    if not isinstance(value, float):
        return str(value)
    exact, words = f"{value:.15g} s", in_words(value)
    return exact if words.endswith(" s") else f"{exact} ({words})"


def note(text: str) -> None:
    """Print a line for people, on stderr. One that cannot be stored, as on a full disk, fails no command."""
    try:
        click.echo(text, err=True)
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _log(_context: click.Context, _parameter: click.Parameter, form: str) -> JsonLog | None:
    """Begin to log in a format; None: as Python does without any setup."""
    if form == "text":
        return None
    from shardq.worker import JsonLog  # noqa: PLC0415 - the help needs none of these

    log = JsonLog(bodies=form == "json-with-bodies")
    log.begin()
    return log


log_option = click.option(
    "--log-format",
    "log",
    type=click.Choice(["text", "json", "json-with-bodies"]),
    default="text",
    show_default=True,
    callback=_log,
    help="How to log on stderr: with json a line of JSON for each event, also for each message.",
)


def note_or_log(text: str, log: JsonLog | None) -> None:
    """Write a line for people to stderr, or an event of the log that is written there."""
    if log is None:
        note(text)
    else:
        import logging  # noqa: PLC0415 - most commands do not log

        logging.getLogger("shardq.work").info(text)


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
