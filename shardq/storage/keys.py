"""The keys of a queue: the part of the storage port that dedupe keys and unique keys rest on.

A unique key has an entry, which is a text. A store compares and sets it, and does not know what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from shardq.storage.requests import DedupeEntry

__all__ = ["UNIQUE_END", "UNIQUE_PREFIX", "KeyChange", "KeyEntry", "KeyRegister"]

UNIQUE_PREFIX, UNIQUE_END = "shardq-unique:", "shardq-unique;"
"""A store MAY keep unique keys among dedupe keys, behind this prefix: what begins so lies before the end, and no dedupe
key begins so."""


class KeyEntry(msgspec.Struct, frozen=True, order=True):
    """The value that is stored under a unique key."""

    key: str
    value: str


class KeyChange(msgspec.Struct, frozen=True):
    """A change of the value under a unique key if it is ``before``. None: no value."""

    key: str
    before: str | None
    after: str | None  # the same as before: it is only looked at


class KeyRegister(Protocol):
    """The operations of a store on keys."""

    # -- dedupe keys -------------------------------------------------------------------------------------------

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve each key for its message for ``window``, and return for each the entry that now stands.

        That is the given entry, unconfirmed, or the one that was there before and whose window is not over. A window
        of 0 or less ends at once, so a call with it only shows the present entries.
        """
        ...

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored. A key that stands for another message is ignored.

        A confirmed key MUST stand until the end of its window.
        """
        ...

    # -- unique keys -------------------------------------------------------------------------------------------

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        """Make those of the changes whose ``before`` is stored; return the value under each key then, None for none.

        Each is one atomic step, independent of the others. A key is in one change only. It MUST see every change that
        was answered before it began. The changes MUST be durable when it returns, with two exceptions. A power failure
        MAY undo the entry of a new key until a later append is durable, and the removal of an entry.

        An entry MUST stand until it is changed or its queue is dropped, for however long. Unique keys and dedupe keys
        of the same text MUST be separate. Raises QueueNotFound when something is to be entered under a new key and the
        queue does not exist.
        """
        ...

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        """Return the next entries of unique keys after that key, at most ``limit``, in an order that the store chooses.

        None MUST mean that there are no more. An entry that stands all the while MUST be on one page, and on one only.
        """
        ...
