"""The name of a shard: ``<queue>:<time shard>:<shard>``."""

from __future__ import annotations

import re

import msgspec

from shardq.errors import InvalidName

__all__ = ["MAX_NAME_LENGTH", "NAME", "Shard", "check_queue_name"]

MAX_NAME_LENGTH = 200
NAME = r"[A-Za-z0-9][A-Za-z0-9._/@-]*"
_NAME = re.compile(NAME)


class Shard(msgspec.Struct, frozen=True, order=True):
    """One shard of a queue: what one request to a store touches, and what claims compete for.

    ``time_shard`` is the position on the ring of time shards and ``number`` the concurrency shard within it,
    both from 0.

    >>> str(Shard("orders", 12, 3))
    'orders:12:3'
    """

    queue: str
    time_shard: int
    number: int

    def __str__(self) -> str:
        return f"{self.queue}:{self.time_shard}:{self.number}"


def check_queue_name(name: object) -> str:
    """Return the name if a queue may have it, else raise :class:`~shardq.InvalidName`.

    1 to 200 characters out of ``A-Z a-z 0-9 . _ - / @``, the first a letter or digit. The colon is missing on
    purpose: it separates the parts of a shard's name, so no queue's name can reach another queue's shards. So is the
    tilde: a store may write it for a character that has a meaning of its own there.
    """
    if not isinstance(name, str):
        raise InvalidName(f"queue name {name!r} is a {type(name).__name__}: give a str")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidName(
            f"queue name {name[:20]!r}... has {len(name)} characters: use at most {MAX_NAME_LENGTH}"
        )
    if not _NAME.fullmatch(name):
        raise InvalidName(
            f"queue name {name!r} cannot be used: use letters, digits, '.', '_', '-', '/' and '@', "
            "first a letter or digit"
        )
    return name
