"""Stores with one defect each in what they do with unique keys."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shardq.storage.keys import KeyChange, KeyEntry
from shardq.storage.requests import QueueRecord, Sweep
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_KEYS"]


class ReplacesWithoutComparing(WrappedStore):
    """Changes an entry whatever stands there."""

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        looks = [replace(each, before=None, after=None) for each in changes]
        standing = super().compare_and_set_keys(queue, looks)
        forced = [
            each if None in (found, each.before) else replace(each, before=found)
            for each, found in zip(changes, standing, strict=True)
        ]
        return super().compare_and_set_keys(queue, forced)


class ReleasesTheEntryOfAnother(WrappedStore):
    """Removes an entry whatever stands there."""

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        looks = [replace(each, before=None, after=None) for each in changes]
        standing = super().compare_and_set_keys(queue, looks)
        forced = [
            replace(each, before=found) if each.after is None and each.before is not None else each
            for each, found in zip(changes, standing, strict=True)
        ]
        return super().compare_and_set_keys(queue, forced)


class AnswersWhatWasAsked(WrappedStore):
    """Tells everybody that the entry is theirs."""

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        super().compare_and_set_keys(queue, changes)
        return tuple(each.after for each in changes)


class ChangesAllOrNone(WrappedStore):
    """Changes nothing when one of several changes cannot be made."""

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        looks = [replace(each, after=each.before) for each in changes]
        standing = super().compare_and_set_keys(queue, looks)
        if any(found != each.before for each, found in zip(changes, standing, strict=True)):
            return standing
        return super().compare_and_set_keys(queue, changes)


class LetsEntriesExpire(WrappedStore):
    """Sweeps entries away, as if they had a window."""

    def sweep(self, request: Sweep) -> int:
        for each in super().list_keys(request.queue):
            super().compare_and_set_keys(request.queue, [KeyChange(each.key, each.value, None)])
        return super().sweep(request)


class KeepsEntriesOfDroppedQueues(WrappedStore):
    """Brings the entries of a dropped queue back with the next queue of its name."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._entries: dict[str, tuple[KeyEntry, ...]] = {}

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        self._entries[name] = super().list_keys(name)
        return super().drop_queue(name, seen)

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        return super().list_keys(queue, after, limit) or (() if after else self._entries.get(queue, ()))


class ListsTheFirstPageOnly(WrappedStore):
    """Lists no entries beyond the first page."""

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        return () if after else super().list_keys(queue, after, limit)


BROKEN_KEYS: tuple[type[WrappedStore], ...] = (
    ReplacesWithoutComparing,
    ReleasesTheEntryOfAnother,
    AnswersWhatWasAsked,
    ChangesAllOrNone,
    LetsEntriesExpire,
    KeepsEntriesOfDroppedQueues,
    ListsTheFirstPageOnly,
)
