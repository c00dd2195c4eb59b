"""Which queues patterns match, and how consumers that follow patterns learn that queues came or went.

The catalogue is the record of a queue without messages. Clients that create or delete a queue give it another version,
once somebody follows patterns. A consumer reads the version in the answer to its registration, every five seconds. So
it lists the queues only when there may be others. The version is a hint: the client that created a queue may have
ended before it wrote one, or may not know of it. So those that follow list the queues once a minute all the same, and
read again where dead letters go every ten minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from shardq.base.patterns import NamePattern
from shardq.base.shard import DEAD_LETTER_SUFFIX, INTERNAL, listed
from shardq.core.context.retry import Retry
from shardq.core.settings import QueueSettings
from shardq.errors import InvalidSetting, ShardqError
from shardq.storage.records import QueueRecord
from shardq.storage.store import Store

__all__ = ["CATALOGUE", "MatchedQueues", "create_catalogue", "note_change", "note_deleted"]

CATALOGUE = f"{INTERNAL}catalogue"

RECORDS_INTERVAL = 540_000_000
"""Microseconds after which a list of the queues reads the settings of all of them, without the catalogue's hint.

With the minute until the next list, that makes ten minutes.
"""


class _Catalogue(msgspec.Struct, frozen=True):
    """The content of the record beside its version."""

    dead_letters: int = 0  # how often a queue was made the dead-letter queue of another one, or ceased to be


_decoder = msgspec.json.Decoder(_Catalogue)


def create_catalogue(store: Store, retry: Retry) -> None:
    """Create the catalogue if it is missing. Changes are noted from then on."""
    retry(store.create_queue, QueueRecord.new(CATALOGUE, msgspec.json.encode(_Catalogue())))


def note_change(store: Store, retry: Retry, name: str, *, dead_letters: bool = False) -> None:
    """Note that a queue was created or deleted; with ``dead_letters`` that its dead letters go elsewhere than before.

    Call it when that is done. It raises nothing: consumers that follow patterns list the queues now and then.
    """
    if name.startswith(INTERNAL):
        return
    with suppress(ShardqError):
        while (record := retry(store.load_queue, CATALOGUE)) is not None:
            known = _decoder.decode(record.settings)
            changed = msgspec.json.encode(_Catalogue(known.dead_letters + dead_letters))
            noted = retry(store.update_queue, QueueRecord(CATALOGUE, changed, record.version + 1))
            if noted or not dead_letters:  # a version that somebody else wrote since then does as well
                return


def note_deleted(store: Store, retry: Retry, record: QueueRecord) -> None:
    """Note that the queue of a record was deleted, and that no dead letters of it go anywhere any more."""
    note_change(store, retry, record.name, dead_letters=_dead_letter_queue(record) is not None)


def _dead_letter_queue(record: QueueRecord) -> str | None:
    with suppress(InvalidSetting):
        return QueueSettings.decode(record.settings, record.name).dead_letter_queue
    return None


class MatchedQueues:
    """Finds the queues that names and patterns stand for.

    No pattern matches a queue that shardq makes for itself, nor a dead-letter queue. That is one whose name ends with
    ``.dead``, or to which the dead letters of another queue go. Where they go is remembered for each queue until the
    catalogue counts a change, and for nine minutes at most. A change that was not noted is missed until then.
    """

    def __init__(self, store: Store, retry: Retry) -> None:
        self._store, self._retry = store, retry
        self._targets: dict[str, str | None] = {}  # by each queue that was read, where its dead letters go
        self._known: bytes | None = None
        self._read_at = -(10**18)

    def find(
        self, wanted: Sequence[str | NamePattern], catalogue: QueueRecord | None = None
    ) -> dict[str, str]:
        """Return the text that stands for each queue, by its name. They are in the order of ``wanted``.

        It lists the queues, and reads the records of those that are not remembered, and the ``catalogue`` if that is
        None. A queue whose settings cannot be decoded counts as one without a dead-letter queue.
        """
        patterns = [each for each in wanted if isinstance(each, NamePattern)]
        names = sorted(listed(self._retry(self._store.list_queues), "")) if patterns else []
        able = [name for name in names if not name.endswith(DEAD_LETTER_SUFFIX)]
        if any(pattern.matches(name) for pattern in patterns for name in able):
            self._forget_if_changed(catalogue)
            dead = self._dead_letter_queues(names)
            able = [name for name in able if name not in dead]
        found: dict[str, str] = {}
        for each in wanted:
            if isinstance(each, NamePattern):
                for name in filter(each.matches, able):
                    found.setdefault(name, each.text)
            else:
                found.setdefault(each, each)
        return found

    def _forget_if_changed(self, catalogue: QueueRecord | None) -> None:
        """Forget where dead letters go if that may have changed: as the ``catalogue`` says, or as the store has it."""
        known = catalogue or self._retry(self._store.load_queue, CATALOGUE)
        now = self._store.now()
        is_fresh = self._read_at <= now < self._read_at + RECORDS_INTERVAL
        if known is None or known.settings != self._known or not is_fresh:
            self._targets, self._read_at = {}, now
        self._known = None if known is None else known.settings

    def _dead_letter_queues(self, names: Sequence[str]) -> set[str]:
        """Return the queues to which dead letters go, but for those with the default name."""
        targets = self._targets = {name: self._targets[name] for name in names if name in self._targets}
        for name in names:
            if name not in targets:  # those that are read stay if another one cannot be
                targets[name] = self._target(name)
        return {target for target in targets.values() if target is not None}

    def _target(self, name: str) -> str | None:
        record = self._retry(self._store.load_queue, name)
        return None if record is None else _dead_letter_queue(record)
