"""Sending what a source gives, and keeping what could not be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from shardq.cli.message_source import Piece
from shardq.cli.printing import many
from shardq.cli.unsent import Unsent
from shardq.errors import PartialSend, ShardqError
from shardq.outgoing_message import OutgoingMessage
from shardq.producer import Producer

__all__ = ["SendReport", "Watcher", "none_sent", "send_pieces"]


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
    producer: Producer, queue: str, pieces: Iterator[Piece], unsent: Unsent | None, watch: Watcher
) -> SendReport:
    """Send every message; the watcher is told the ids of each piece as soon as it is stored.

    Raises the error itself when nothing was stored and nothing is to be kept, else PartialSend. With ``unsent`` the
    messages that were not stored, a line that is none, and all that the source still has, are in that file.
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
        if stopped is None and piece.error is not None:
            stopped = _Stopped(piece.error, ())
        if stopped is not None:
            left = msgspec.structs.replace(piece, messages=stopped.unsent)
            raise _explained(stopped.error, report.sent, queue, left, pieces, unsent)
    return report


def none_sent(error: ShardqError, queue: str, pieces: Iterator[Piece], unsent: Unsent | None) -> ShardqError:
    """What to raise when the queue could not even be opened; all that the source has is kept."""
    return _explained(error, 0, queue, Piece((), 0), pieces, unsent)


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
    error: ShardqError, sent: int, queue: str, left: Piece, pieces: Iterable[Piece], unsent: Unsent | None
) -> ShardqError:
    cause = error.__cause__ if isinstance(error, PartialSend) else error
    if unsent is None and not sent:
        return error
    text = f"{many(sent, 'message')} stored in queue {queue!r}, the rest is not: {str(cause).rstrip('.')}"
    if unsent is None:
        text += "; --unsent FILE keeps the rest"
    else:
        kept = unsent.keep(chain((left,), pieces))
        text += f"; {many(kept, 'line')} kept: {unsent.command(queue)}"
    partial = PartialSend(text, (), left.messages)
    partial.__cause__ = cause
    return partial
