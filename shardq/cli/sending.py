"""The messages of a ``send``: read piece by piece, sent, and kept in a file if they could not be sent."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from shardq.base.outgoing_message import OutgoingMessage
from shardq.cli.message_line import encode_line, parse_plain
from shardq.cli.output import open_output
from shardq.cli.printing import many
from shardq.client.producer import Producer
from shardq.errors import InvalidMessage, PartialSend, ShardqError

__all__ = [
    "Parse",
    "Piece",
    "SendReport",
    "Stop",
    "Unsent",
    "Watcher",
    "given_bodies",
    "none_sent",
    "pieces_of_lines",
    "pieces_of_texts",
    "send_pieces",
]


_E = TypeVar("_E", bound=BaseException | None)

Parse = Callable[[bytes], OutgoingMessage]

READ_BYTES = 1_048_576


class Piece(msgspec.Struct, frozen=True):
    """Messages that were read together, and the faulty line after them, if there is one."""

    messages: Sequence[OutgoingMessage]
    read: int  # bytes
    error: InvalidMessage | None = None
    faulty: bytes = b""  # the line that is not a message
    places: Sequence[int] = ()  # the number of each message's line or argument
    last: int = 0  # the number of the last line or argument that was read, the faulty one too
    kind: str = "line"

    @property
    def faulty_places(self) -> Sequence[int]:
        """The number of the faulty line or argument, if there is one."""
        return () if self.error is None else (self.last,)


def pieces_of_texts(texts: Sequence[str], parse: Parse) -> Iterator[Piece]:
    """Parse the messages in the arguments of a command."""
    yield from _parsed([text.encode("utf-8", "surrogateescape") for text in texts], 1, parse, "argument")


def pieces_of_lines(stream: BinaryIO, parse: Parse) -> Iterator[Piece]:
    """Parse the messages in the lines of a file or a pipe.

    Complete lines are passed on before more is waited for. Reading can continue after a faulty line.
    """
    number = 1
    begun: list[bytes] = []  # of an incomplete line
    while data := _read(stream):
        first, *lines = data.split(b"\n")
        begun.append(first)
        if not lines:
            continue
        lines, begun = [b"".join(begun), *lines[:-1]], [lines[-1]]
        yield from _parsed(lines, number, parse, "line")
        number += len(lines)
    if rest := b"".join(begun):
        yield from _parsed([rest], number, parse, "line")


def given_bodies(texts: Sequence[str], codec: str = "bytes") -> Iterator[list[bytes]]:
    """Yield the bodies in the arguments of a command; without any, or for ``-``, in the lines of stdin, as they come.

    Raises InvalidMessage for one that the codec cannot take, after those before it.
    """
    parse = partial(parse_plain, codec=codec, shared=OutgoingMessage(body=b""))
    lines = texts in ((), ("-",))
    pieces = pieces_of_lines(sys.stdin.buffer, parse) if lines else pieces_of_texts(texts, parse)
    for piece in pieces:
        if piece.messages:
            yield [message.body for message in piece.messages]
        if piece.error is not None:
            raise piece.error


def _read(stream: BinaryIO) -> bytes:
    read = getattr(stream, "read1", stream.read)
    data: bytes = read(READ_BYTES)
    return data


def _parsed(texts: Sequence[bytes], number: int, parse: Parse, kind: str) -> Iterator[Piece]:
    messages: list[OutgoingMessage] = []
    places: list[int] = []
    size = 0
    for place, text in enumerate(texts, number):
        size += len(text) + 1
        body = text.removesuffix(b"\r") if kind == "line" else text
        if not body and kind == "line":
            continue
        try:
            messages.append(parse(body))
            places.append(place)
        except InvalidMessage as error:
            faulty = InvalidMessage(f"{kind} {place}: {error}")
            yield Piece(messages, size, faulty, text, places, place, kind)
            messages, places, size = [], [], 0
    if messages or size:
        yield Piece(messages, size, places=places, last=number + len(texts) - 1, kind=kind)


class Unsent(msgspec.Struct, frozen=True):
    """A file of JSON lines, which ``send --jsonl`` accepts with the same codec.

    A faulty line is kept in its place as it was read. Sending the file stops there until the line is corrected.
    """

    path: Path
    codec: str

    def keep(self, pieces: Iterable[Piece]) -> int:
        """Write all pieces and return the number of lines. The file gets its name when it is complete.

        The pieces may come from the file of that name.
        """
        with open_output(self.path) as file:
            return sum(1 for line in self._lines(pieces) if file.write(line + b"\n"))

    def command(self, queue: str) -> str:
        """Return the command that sends the file."""
        codec = "" if self.codec == "bytes" else f" --codec {self.codec}"
        return f"shardq send {queue} --jsonl{codec} --file {shlex.quote(str(self.path))}"

    def _lines(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        for piece in pieces:
            yield from (encode_line(message, self.codec) for message in piece.messages)
            if piece.error is not None:
                yield piece.faulty


class SendReport(msgspec.Struct, frozen=True):
    """The progress of a ``send``."""

    sent: int = 0
    bytes: int = 0  # that were read from the source
    last: int = 0  # the number of the last line or argument that was read
    unsent: Sequence[int] = ()  # the numbers of those until there that are not stored


Watcher = Callable[[SendReport, Sequence[str]], None]


class Stop:
    """Ends a command after its present step, so that it is known which lines of a ``send`` were sent."""

    def __init__(self) -> None:
        self.wanted = False

    def ask(self) -> None:
        """Ask for it. The second call raises KeyboardInterrupt."""
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


class _Stopped(Exception):
    def __init__(
        self, error: ShardqError, unsent: Sequence[OutgoingMessage] = (), places: Sequence[int] = ()
    ) -> None:
        super().__init__(str(error))
        self.error, self.unsent, self.places = error, unsent, places


def send_pieces(
    producer: Producer,
    queue: str,
    pieces: Iterator[Piece],
    unsent: Unsent | None,
    watch: Watcher,
    stop: Stop,
) -> SendReport:
    """Send every message. The watcher gets the ids of each piece when it is stored.

    If a piece fails, ``unsent`` keeps its messages that were not stored, a faulty line, and the rest of the source.
    Raises PartialSend then. If nothing was stored and there is no ``unsent``, it raises the error itself. Raises
    KeyboardInterrupt, with the rest of the source in ``unsent``, when it was asked to stop.
    """
    report = SendReport()
    for piece in pieces:
        if stop.wanted and unsent is not None:
            text = f"{many(report.sent, 'message')} sent"
            raise KeyboardInterrupt(_keeping(text, chain((piece,), pieces), queue, unsent))
        stored: Sequence[str] = ()
        stopped: _Stopped | None = None
        try:
            stored = _send(producer, piece)
        except _Stopped as caught:
            stopped = caught
            stored = caught.error.stored if isinstance(caught.error, PartialSend) else ()
        left = msgspec.structs.replace(piece, messages=() if stopped is None else stopped.unsent)
        unsent_places = [*(stopped.places if stopped is not None else ()), *piece.faulty_places]
        report = SendReport(report.sent + len(stored), report.bytes + piece.read, piece.last, unsent_places)
        try:
            watch(report, stored)
        except OSError:  # nobody reads the ids any more
            if unsent is not None:
                unsent.keep(chain((left,), pieces))
            raise
        if stopped is None and piece.error is not None:
            stopped = _Stopped(piece.error)
        if stopped is not None:
            raise _explained(stopped.error, report.sent, queue, left, pieces, unsent)
    return report


def none_sent(error: ShardqError, queue: str, pieces: Iterator[Piece], unsent: Unsent | None) -> ShardqError:
    """Return the error to raise if the queue could not be opened. ``unsent`` keeps the whole source."""
    return _explained(error, 0, queue, Piece((), 0), pieces, unsent)


def _send(producer: Producer, piece: Piece) -> Sequence[str]:
    if not piece.messages:
        return ()
    try:
        return producer.send_many(piece.messages)
    except PartialSend as error:
        error.__cause__ = _located(error.__cause__, piece)
        places = [piece.places[position] for position in error.positions]
        raise _Stopped(error, error.unsent, places) from error
    except ShardqError as error:
        raise _Stopped(_located(error, piece), piece.messages, piece.places) from error


def _located(error: _E, piece: Piece) -> _E:
    """Return the error; if it is about one message, it names the line or argument of the message."""
    if isinstance(error, InvalidMessage) and error.position is not None:
        return type(error)(f"{piece.kind} {piece.places[error.position]}: {error.__cause__}")
    return error


def _explained(
    error: ShardqError, sent: int, queue: str, left: Piece, pieces: Iterable[Piece], unsent: Unsent | None
) -> ShardqError:
    cause = error.__cause__ if isinstance(error, PartialSend) else error
    if unsent is None and not sent:
        return error
    text = f"{many(sent, 'message')} stored in queue {queue!r}, the rest is not: {str(cause).rstrip('.')}"
    if unsent is None:
        text += "; --unsent FILE keeps the rest"
    else:
        text = _keeping(text, chain((left,), pieces), queue, unsent)
    partial = PartialSend(text, (), left.messages)
    partial.__cause__ = cause
    return partial


def _keeping(text: str, pieces: Iterable[Piece], queue: str, unsent: Unsent) -> str:
    """Keep the messages that were not sent; returns the text with their fate."""
    try:
        lines = unsent.keep(pieces)
    except OSError as error:
        return f"{text}; the other lines could not be kept: {error}"
    return f"{text}; {many(lines, 'line')} kept: {unsent.command(queue)}"
