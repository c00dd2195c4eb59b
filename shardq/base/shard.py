"""Shards: their names, the shards of groups, the ring of time shards, and which names a queue may have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from zlib import crc32

import msgspec

from shardq.base.texts import kind_of, plain, shown
from shardq.errors import InvalidName

__all__ = [
    "DEAD_LETTER_SUFFIX",
    "GROUP_SHARDS",
    "GROUP_TIME_SHARD",
    "INTERNAL",
    "MAX_NAME_LENGTH",
    "NAME",
    "TOPICS_FOLDER",
    "Layout",
    "Shard",
    "check_queue_name",
    "group_shard",
    "group_shards",
    "listed",
    "may_begin_a_name",
]

MAX_NAME_LENGTH = 200
GROUP_TIME_SHARD = 10_000
"""Beyond every ring: the messages of groups are here, so that no change of a queue's layout moves a group."""

GROUP_SHARDS = 16
"""Of every queue. It never changes: a group would be in two shards."""

DEAD_LETTER_SUFFIX = ".dead"
"""Of the names of dead-letter queues that no setting names, also of those whose queues were deleted."""

INTERNAL = "_shardq/"
"""Names of queues that shardq makes for itself begin so. They are listed only on request."""

TOPICS_FOLDER = f"{INTERNAL}topics/"
"""Names of the queues and background jobs of topics begin so."""

NAME = rf"(?:{INTERNAL})?[A-Za-z0-9][A-Za-z0-9._/@-]*"
_NAME, _PREFIX = re.compile(NAME), re.compile(r"[A-Za-z0-9._/@-]*")


class Shard(msgspec.Struct, frozen=True, order=True):
    """One shard of a queue. A request to a store touches one shard, and claims of one shard compete.

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

    @property
    def is_grouped(self) -> bool:
        """True for a shard that holds the messages of groups, and no others."""
        return self.time_shard == GROUP_TIME_SHARD


def group_shard(queue: str, group: str) -> Shard:
    """Return the shard of a group: the same for ever, and of the same number in every queue.

    >>> str(group_shard("orders", "customer-42"))
    'orders:10000:5'
    """
    return Shard(queue, GROUP_TIME_SHARD, crc32(group.encode()) % GROUP_SHARDS)


def group_shards(queue: str) -> tuple[Shard, ...]:
    """Return all shards of a queue's groups."""
    return tuple(Shard(queue, GROUP_TIME_SHARD, number) for number in range(GROUP_SHARDS))


def check_queue_name(name: object) -> str:
    """Return the name if a queue may have it, else raise :class:`~shardq.InvalidName`.

    A name has 1 to 200 characters out of ``A-Z a-z 0-9 . _ - / @``, the first a letter or digit. Names of queues that
    shardq makes for itself begin with ``_shardq/``. The colon is missing on purpose: it separates the parts of a
    shard's name, so no queue's name can reach another queue's shards. So is the tilde: a store may write it for a
    character that has a special meaning there.
    """
    if not isinstance(name, str):
        raise InvalidName(f"queue name {shown(name)} is {kind_of(name)}: give a str")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidName(
            f"queue name {shown(name)[:21]}... has {len(name)} characters: use at most {MAX_NAME_LENGTH}"
        )
    if not _NAME.fullmatch(name):
        raise InvalidName(
            f"queue name {shown(name)} cannot be used: use letters, digits, '.', '_', '-', '/' and '@', "
            "first a letter or digit"
        )
    return plain(name)


def may_begin_a_name(prefix: str) -> bool:
    """Return whether each character of the prefix may be in a queue's name; stores need not handle other ones."""
    return _PREFIX.fullmatch(prefix) is not None


def listed(names: Iterable[str], prefix: str) -> tuple[str, ...]:
    """Return which of the names a list by this prefix shows: shardq's own only if the prefix begins as they do.

    >>> listed(["_shardq/topics/news", "orders"], "")
    ('orders',)
    """
    return tuple(name for name in names if prefix.startswith(INTERNAL) or not name.startswith(INTERNAL))


class Layout(msgspec.Struct, frozen=True):
    """How a queue is cut into shards.

    >>> Layout(shards=20, time_shards=50, time_shard_seconds=30).time_shard(1_000_000_000)
    33
    """

    shards: int
    time_shards: int
    time_shard_seconds: float

    def window(self, moment: int) -> int:
        """Return the number of the window of ``time_shard_seconds`` that a moment in microseconds is in."""
        return int(moment // (self.time_shard_seconds * 1_000_000))

    def time_shard(self, moment: int) -> int:
        """Return the place on the ring of the window that a moment in microseconds is in."""
        return int(moment // (self.time_shard_seconds * 1_000_000)) % self.time_shards

    def all_shards(self, queue: str) -> tuple[Shard, ...]:
        """List every shard of the ring."""
        return tuple(
            Shard(queue, time_shard, number)
            for time_shard in range(self.time_shards)
            for number in range(self.shards)
        )

    def time_shards_between(self, start: int, end: int) -> tuple[int, ...]:
        """List the places on the ring that are passed from one moment to another, both included, in order."""
        first, last = self.window(start), self.window(end)
        first = max(first, last - self.time_shards + 1)
        return tuple(window % self.time_shards for window in range(first, last + 1))

    def shards_between(self, queue: str, start: int, end: int) -> tuple[Shard, ...]:
        """List every shard that is written between two moments."""
        return tuple(
            Shard(queue, time_shard, number)
            for time_shard in self.time_shards_between(start, end)
            for number in range(self.shards)
        )
