"""The identity of a consumer, as it is registered in the store, and the common part of its claims.

The first half of the token of each of its claims is the consumer's id. So the holder of a message follows from the
token that every store keeps of it, and costs nothing more.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

import msgspec

from shardq.base.codec import UNREADABLE
from shardq.base.texts import plain, shown
from shardq.errors import InvalidSetting

__all__ = ["REGISTRATION_LIFETIME", "ConsumerIdentity", "holder_id", "moment_in"]

REGISTRATION_LIFETIME = 16_000_000
"""For how long a consumer counts as live after it was seen, in microseconds."""

_ID_BYTES = 8
_RANDOM_BYTES = 8  # of a token: nobody can guess the receipt of another
_MOMENT_BYTES = 4  # of the others, in tokens that nobody is given as a receipt
_SECOND = 1_000_000
_MOST_CHARACTERS = 200


class ConsumerIdentity(msgspec.Struct, frozen=True, array_like=True):
    """A consumer, from when it is made until it is closed. Another one is made each time, whatever the name."""

    name: str
    id: str  # in hex
    host: str
    pid: int
    since: int  # microseconds, by the clock of its host
    lease: int | None = None  # in microseconds, of its claims; None: the visibility timeout of each queue

    @classmethod
    def make(cls, name: str | None = None, lease: int | None = None) -> ConsumerIdentity:
        """Make a new consumer of this process. Raises InvalidSetting for a name that cannot be one."""
        host, pid, identity = socket.gethostname(), os.getpid(), secrets.token_hex(_ID_BYTES)
        chosen = _check_name(name) if name is not None else f"{host}-{pid}-{identity[:8]}"
        return cls(chosen, identity, host, pid, time.time_ns() // 1000, lease)

    @classmethod
    def read(cls, text: str) -> ConsumerIdentity | None:
        """Read a registered consumer; None for one of an older client, which registers its name only."""
        try:
            return _decode(text.encode())
        except UNREADABLE:
            return None

    @property
    def text(self) -> str:
        """The text that it is registered as: the same for all of its life, and for no other one."""
        return msgspec.json.encode(self).decode()

    def token(self, moment: int | None = None) -> bytes:
        """Make a token for a new claim; with a moment in microseconds, the token has its second."""
        if moment is None:
            return bytes.fromhex(self.id) + os.urandom(_RANDOM_BYTES)
        stamp = (moment // _SECOND).to_bytes(_MOMENT_BYTES, "big")
        return bytes.fromhex(self.id) + stamp + os.urandom(_RANDOM_BYTES - _MOMENT_BYTES)


def holder_id(token: bytes) -> str:
    """Return the id of the consumer whose claim has this token."""
    return token[:_ID_BYTES].hex()


def moment_in(token: bytes) -> int:
    """Return the moment in microseconds of a token that has one; any number for another token."""
    return int.from_bytes(token[_ID_BYTES : _ID_BYTES + _MOMENT_BYTES], "big") * _SECOND


def _check_name(name: str) -> str:
    if not (isinstance(name, str) and 0 < len(name) <= _MOST_CHARACTERS and name.isprintable()):
        raise InvalidSetting(
            f"name={shown(name)} cannot be the name of a consumer: give 1 to {_MOST_CHARACTERS} printable characters"
        )
    return plain(name)


_decode = msgspec.json.Decoder(ConsumerIdentity).decode
