"""What is written out: bodies, on a line of stdout or into a file, large ones piece by piece; and such files."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from shardq.cli.message_view import body_text
from shardq.cli.printing import print_line
from shardq.message import Message, StoredMessage

__all__ = ["open_output", "output_option", "write_body"]

_PIECE = 1 << 20

output_option = click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the body to this file, as it is.",
)


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which gets its name when it is complete. A pipe or a device is written as it is."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve() if path.is_symlink() else path  # so that the link stays one
    part = target.with_name(target.name + ".part")
    with part.open("wb") as file:
        yield file
    part.replace(target)


def write_body(
    message: Message | StoredMessage,
    codec: str,
    output: Path | None,
    open_large: Callable[[], io.BufferedReader],
    *,
    receipt: str | None = None,
) -> None:
    r"""Write a body on a line, or into a file. Raises InvalidMessage, BodyNotFound or OSError.

    Behind a receipt it has one line only: a newline is written as \n.
    """
    if output is not None:
        with open_output(output) as file:
            if message.large is None:
                file.write(body_text(message, codec))
            else:
                _copy(open_large, file.write)
    elif message.large is None:
        text = body_text(message, codec)
        print_line(text if receipt is None else _head(receipt) + _in_one_line(text))
    else:
        _print_large(open_large, receipt)


def _print_large(open_large: Callable[[], io.BufferedReader], receipt: str | None) -> None:
    stdout = sys.stdout.buffer
    if receipt is None:
        _copy(open_large, stdout.write)
    else:
        stdout.write(_head(receipt))
        _copy(open_large, lambda piece: stdout.write(_in_one_line(piece)))
    print_line(b"")


def _head(receipt: str) -> bytes:
    return receipt.encode() + b"\t"


def _in_one_line(text: bytes) -> bytes:
    return text.replace(b"\n", b"\\n")


def _copy(open_large: Callable[[], io.BufferedReader], write: Callable[[bytes], object]) -> None:
    with open_large() as body:
        while piece := body.read(_PIECE):
            write(piece)
