"""The messages that are to be sent, a piece at a time, from the arguments, a file or stdin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import msgspec

from shardq.errors import InvalidMessage
from shardq.outgoing_message import OutgoingMessage

__all__ = ["Parse", "Piece", "pieces_of_lines", "pieces_of_texts"]

Parse = Callable[[bytes], OutgoingMessage]

READ_BYTES = 1_048_576


class Piece(msgspec.Struct, frozen=True):
    """Messages that were read together, and why reading paused after them: a line that is none."""

    messages: Sequence[OutgoingMessage]
    read: int  # bytes
    error: InvalidMessage | None = None
    faulty: bytes = b""  # the line that is none


def pieces_of_texts(texts: Sequence[str], parse: Parse) -> Iterator[Piece]:
    """The arguments of a command."""
    yield from _parsed([text.encode("utf-8", "surrogateescape") for text in texts], 1, parse, "argument")


def pieces_of_lines(stream: BinaryIO, parse: Parse) -> Iterator[Piece]:
    """The lines of a file or a pipe, as they come: what is there is passed on before more is waited for.

    It can be read on after a line that is no message.
    """
    number, rest = 1, b""
    while data := _read(stream):
        *lines, rest = (rest + data).split(b"\n")
        yield from _parsed(lines, number, parse, "line")
        number += len(lines)
    if rest:
        yield from _parsed([rest], number, parse, "line")


def _read(stream: BinaryIO) -> bytes:
    read = getattr(stream, "read1", stream.read)
    data: bytes = read(READ_BYTES)
    return data


def _parsed(texts: Sequence[bytes], number: int, parse: Parse, kind: str) -> Iterator[Piece]:
    messages: list[OutgoingMessage] = []
    size = 0
    for place, text in enumerate(texts, number):
        size += len(text) + 1
        if not text and kind == "line":
            continue
        try:
            messages.append(parse(text.removesuffix(b"\r")))
        except InvalidMessage as error:
            yield Piece(messages, size, InvalidMessage(f"{kind} {place}: {error}"), text)
            messages, size = [], 0
    if messages or size:
        yield Piece(messages, size)
