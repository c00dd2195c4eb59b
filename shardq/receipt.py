"""Message ids and receipts: where a message is stored, and the claim under which it is held."""

from __future__ import annotations

import re

import msgspec

from shardq.errors import InvalidReceipt
from shardq.sharding.shard import NAME, Shard
from shardq.wording import shown

__all__ = ["ID_PATTERN", "MessageId", "Receipt"]

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
                f"{shown(text)} is no message id: give '<queue>:<time shard>:<shard>:<bundle>:<position>', "
                "as `send` returned it"
            )
        name, time_shard, number, bundle_id, position = match.groups()
        if queue is not None and name != queue:
            raise InvalidReceipt(f"message {text} is of queue {name!r}, not of {queue!r}: ask that queue")
        return cls(Shard(name, int(time_shard), int(number)), bytes.fromhex(bundle_id), int(position))


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
                f"{shown(text)} is no receipt: give it as `message.receipt` has it, or `shardq receive --receipts` "
                "prints it"
            )
        return cls(MessageId.parse(head, queue), bytes.fromhex(token))
