"""The file with what could not be sent."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from shardq.cli.message_line import encode_line
from shardq.cli.message_source import Piece

__all__ = ["Unsent"]


class Unsent(msgspec.Struct, frozen=True):
    """A file of JSON lines that ``send --jsonl`` takes with the same codec.

    A line that is no message is kept as it was read, at its place: sending the file stops there until it is mended.
    """

    path: Path
    codec: str

    def keep(self, pieces: Iterable[Piece]) -> int:
        """Write all that there is; returns how many lines. The file takes its name when it is whole.

        The pieces may come out of the file of that name.
        """
        if self.path.exists() and not self.path.is_file():  # a pipe, a terminal
            return self._write(self.path, pieces)
        part = self.path.with_name(self.path.name + ".part")
        kept = self._write(part, pieces)
        part.replace(self.path)
        return kept

    def command(self, queue: str) -> str:
        """How to send what it holds."""
        codec = "" if self.codec == "bytes" else f" --codec {self.codec}"
        return f"shardq send {queue} --jsonl{codec} --file {shlex.quote(str(self.path))}"

    def _write(self, path: Path, pieces: Iterable[Piece]) -> int:
        with path.open("wb") as file:
            return sum(1 for line in self._lines(pieces) if file.write(line + b"\n"))

    def _lines(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        for piece in pieces:
            yield from (encode_line(message, self.codec) for message in piece.messages)
            if piece.error is not None:
                yield piece.faulty
