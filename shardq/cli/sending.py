"""Sending what a source gives, and keeping what could not be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from shardq.cli.message_line import encode_line
from shardq.cli.message_source import Piece
from shardq.errors import PartialSend, ShardqError
from shardq.message import OutgoingMessage
from shardq.producer import Producer

__all__ = ["SendReport", "Watcher", "send_pieces"]


class SendReport(msgspec.Struct, frozen=True):
    """What a ``send`` has done so far."""

    sent: int = 0
    bytes: int = 0  # that were read from the source


Watcher = Callable[[SendReport, Sequence[str]], None]


class _Stopped(Exception):
    def __init__(self, error: ShardqError, unsent: Sequence[OutgoingMessage]) -> None:
        super().__init__(str(error))
        self.error, self.unsent = error, unsent


def send_pieces(
    producer: Producer, queue: str, pieces: Iterator[Piece], unsent: Path | None, watch: Watcher
) -> SendReport:
    """Send every message; the watcher is told the ids of each piece as soon as it is stored.

    Raises the error itself when nothing was stored and nothing is to be kept, else PartialSend. With
    ``unsent`` the messages that were not stored, and all that the source still has, are in that file.
    """
    report = SendReport()
    for piece in pieces:
        stored: Sequence[str] = ()
        stopped: _Stopped | None = None
        try:
            stored = _send(producer, piece)
        except _Stopped as caught:
            stopped = caught
            stored = caught.error.stored if isinstance(caught.error, PartialSend) else ()
        report = SendReport(report.sent + len(stored), report.bytes + piece.read)
        watch(report, stored)
        if stopped is not None:
            raise _explained(stopped, report, queue, pieces, unsent)
        if piece.error is not None:
            raise _explained(_Stopped(piece.error, ()), report, queue, pieces, unsent)
    return report


def _send(producer: Producer, piece: Piece) -> Sequence[str]:
    if not piece.messages:
        return ()
    try:
        return producer.send_many(piece.messages)
    except PartialSend as error:
        raise _Stopped(error, error.unsent) from error
    except ShardqError as error:
        raise _Stopped(error, piece.messages) from error


def _explained(
    stopped: _Stopped, report: SendReport, queue: str, pieces: Iterator[Piece], unsent: Path | None
) -> ShardqError:
    cause = stopped.error.__cause__ if isinstance(stopped.error, PartialSend) else stopped.error
    if unsent is None and not report.sent:
        return stopped.error
    text = f"{report.sent:,} messages are stored in queue {queue!r}, the rest is not: {cause}"
    if unsent is None:
        text += "; --unsent FILE keeps the rest"
    else:
        with unsent.open("wb") as file:
            kept = _keep(stopped.unsent, pieces, file)
        text += f"; {kept:,} are kept: shardq send {queue} --jsonl --file {unsent}"
    partial = PartialSend(text, (), stopped.unsent)
    partial.__cause__ = cause
    return partial


def _keep(messages: Sequence[OutgoingMessage], pieces: Iterator[Piece], file: BinaryIO) -> int:
    kept = _write(messages, file)
    return kept + sum(_write(piece.messages, file) for piece in pieces)


def _write(messages: Sequence[OutgoingMessage], file: BinaryIO) -> int:
    for message in messages:
        file.write(encode_line(message) + b"\n")
    return len(messages)
