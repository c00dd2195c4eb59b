"""Output: bodies, on a line of stdout or into a file, large ones piece by piece; and such files."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import select
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from shardq.cli.failures import DISK_FULL
from shardq.cli.message_view import body_text
from shardq.cli.printing import print_line
from shardq.core.message import Message, StoredMessage

__all__ = ["check_output", "goes_through", "open_output", "output_option", "wait_for_reader", "write_body"]

_PIECE = 1 << 20
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.000_05, 0.05  # seconds, between two reads of a pipe's state
_STDOUT = [Path(name) for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")]
"""Not opened by its name, as it may be a file to which others write, too."""


def check_output(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Check the path of a file that is to be written later. A callback for options."""
    if path is None or goes_through(path):
        return path
    folder = _target(path).parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {str(folder)!r}.")
    if not os.access(folder, os.W_OK):
        raise click.BadParameter(f"no file can be made in folder {str(folder)!r}.")
    return path


output_option = click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=check_output,
    help="Write the body to this file, as it is; - is stdout.",
)


def goes_through(path: Path) -> bool:
    """Return True for stdout, a pipe or a device: the output is not kept under this name."""
    return path in _STDOUT or (path.exists() and not path.is_file())


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which gets its name when it is complete. Stdout, a pipe or a device is written as it is."""
    if goes_through(path):
        with _naming(path), os.fdopen(os.dup(1), "wb") if path in _STDOUT else path.open("wb") as file:
            yield file
        return
    target = _target(path)
    part = target.with_name(f"{target.name[:50]}.{secrets.token_hex(4)}.part")  # a name that nobody has
    try:
        with _naming(path), part.open("xb") as file:
            yield file
        part.replace(target)
    except Exception:  # Ctrl-C leaves what is there
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors of writing it. Stdout has its own words for that."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL and error.filename is None and path not in _STDOUT:
            error.filename = str(path)
        raise


def _target(path: Path) -> Path:
    """Return the file that a link names; the link stays one."""
    return path.resolve() if path.is_symlink() else path


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


def wait_for_reader() -> None:
    """Wait until the reader of stdout has taken all of it, if stdout is a pipe. Raises BrokenPipeError if it will not.

    The rest in a pipe was not read when its reader ends. Where the system does not report how much that is, nothing is
    waited for.
    """
    sys.stdout.flush()
    if (pipe := _pipe()) is None:
        return
    reader, pause = select.poll(), _SHORTEST_PAUSE
    reader.register(pipe, 0)  # its end is reported unasked
    while _unread(pipe):
        if reader.poll(0) and _unread(pipe):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


def _pipe() -> int | None:
    """Return the pipe that stdout is, if the system reports its unread bytes."""
    try:
        number = sys.stdout.fileno()
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            _unread(number)
            return number
    except (OSError, ValueError):  # no file at all, or another system
        pass
    return None


def _unread(pipe: int) -> int:
    """Count the bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


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
