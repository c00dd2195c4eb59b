"""Message ids and receipts: where a message is stored, and the claim under which it is held."""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

import msgspec

from shardq.base.shard import NAME, Shard
from shardq.base.texts import shown
from shardq.errors import InvalidReceipt

__all__ = ["ID_PATTERN", "BundleIdRun", "MessageId", "Receipt", "SentIds"]

_NUMBER = r"(0|[1-9][0-9]{0,8})"
ID_PATTERN = rf"({NAME}):{_NUMBER}:{_NUMBER}:([0-9a-f]{{32}}):{_NUMBER}"
_ID = re.compile(ID_PATTERN)


class MessageId(msgspec.Struct, frozen=True, order=True):
    """Where a message is stored: its shard, its bundle and its position in it, from 0.

    >>> MessageId.parse("orders:12:3:0197c8a2b4d07abc8123456789abcdef:17").position
    17
    """

    shard: Shard
    bundle_id: bytes
    position: int

    def __str__(self) -> str:
        shard = self.shard  # whose text is written here too, as every message has an id
        return f"{shard.queue}:{shard.time_shard}:{shard.number}:{self.bundle_id.hex()}:{self.position}"

    @classmethod
    def parse(cls, text: str, queue: str | None = None) -> MessageId:
        """Read an id; raises InvalidReceipt when it is malformed, or of another queue than the one given."""
        match = _ID.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidReceipt(
                f"{shown(text)} is not a message id: give '<queue>:<time shard>:<shard>:<bundle>:<position>', "
                "as `send` returned it"
            )
        name, time_shard, number, bundle_id, position = match.groups()
        if queue is not None and name != queue:
            raise InvalidReceipt(f"message {text} is of queue {name!r}, not of {queue!r}: ask that queue")
        return cls(Shard(name, int(time_shard), int(number)), bytes.fromhex(bundle_id), int(position))

    def after(self, number: int) -> MessageId:
        """Return the id of the message that is ``number`` positions behind this one in its bundle."""
        return MessageId(self.shard, self.bundle_id, self.position + number)


class Receipt(msgspec.Struct, frozen=True, order=True):
    """A message id, and the token of the claim that holds the message. As text it can be sent to another process."""

    id: MessageId
    token: bytes

    def __str__(self) -> str:
        return f"{self.id}:{self.token.hex()}"

    @classmethod
    def parse(cls, text: str, queue: str | None = None) -> Receipt:
        """Read a receipt; raises InvalidReceipt when it is malformed, or of another queue than the one given."""
        head, _, token = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if not re.fullmatch(r"[0-9a-f]{32}", token):
            raise InvalidReceipt(
                f"{shown(text)} is not a receipt: give it as `message.receipt` has it, or `shardq receive --receipts` "
                "prints it"
            )
        return cls(MessageId.parse(head, queue), bytes.fromhex(token))


class _MadeIds(Sequence[str]):
    """Ids that are made when they are asked for."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._at(position) for position in range(len(self))[index]]
        return self._at(range(len(self))[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, range(len(self)))

    @abstractmethod
    def _at(self, position: int) -> str:
        """Return the id at a position, which is in range."""


class BundleIdRun(_MadeIds):
    """The ids of a bundle's messages, in order."""

    __slots__ = ("_bundle_id", "_count", "_shard")

    def __init__(self, shard: Shard, bundle_id: bytes, count: int) -> None:
        self._shard, self._bundle_id, self._count = shard, bundle_id, count

    def __len__(self) -> int:
        return self._count

    def _at(self, position: int) -> str:
        return str(MessageId(self._shard, self._bundle_id, position))


class SentIds(_MadeIds):
    """The ids of the messages of a bulk send, in the order in which they were given.

    A sequence that makes each id when it is asked for: a million messages take about a hundred kilobytes.
    """

    def __init__(self) -> None:
        self._runs: list[Sequence[str]] = []
        self._starts: list[int] = []
        self._length = 0

    def extend(self, run: Sequence[str]) -> None:
        """Add the ids of further messages."""
        if count := len(run):
            self._runs.append(run)
            self._starts.append(self._length)
            self._length += count

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for run in self._runs:
            yield from run

    def _at(self, position: int) -> str:
        run = bisect_right(self._starts, position) - 1
        return self._runs[run][position - self._starts[run]]

    def __repr__(self) -> str:
        return f"<SentIds of {self._length} messages>"
