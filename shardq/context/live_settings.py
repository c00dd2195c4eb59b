"""The settings of a queue as they are in the store, at most a second old."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from shardq.context.retry import Retry
from shardq.errors import OutcomeUnknown, QueueNotFound
from shardq.settings import QueueSettings
from shardq.storage.requests import QueueRecord
from shardq.storage.store import Store

__all__ = ["LiveSettings"]

REFRESH_SECONDS = 1.0


class LiveSettings:
    """One queue's settings, shared by everything that one client does with the queue."""

    def __init__(
        self, store: Store, retry: Retry, name: str, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._retry, self._name, self._timer = store, retry, name, timer
        self._record, self._settings = self._load()
        self._read_at = timer()

    def current(self) -> QueueSettings:
        """The settings; read from the store again when they are older than a second. Raises QueueNotFound."""
        if self._timer() - self._read_at > REFRESH_SECONDS:
            self.refresh()
        return self._settings

    def refresh(self) -> QueueSettings:
        """The settings as the store has them now. Raises QueueNotFound."""
        self._record, self._settings = self._load()
        self._read_at = self._timer()
        return self._settings

    def alter(self, changes: dict[str, Any]) -> QueueSettings:
        """Store changed settings; another client's change at the same moment is kept too."""
        while True:
            known = self.refresh()
            settings = known.change(changes)
            settings.check_store(self._store.capabilities)
            if settings.layout != known.layout:
                self._retry(self._store.prepare, settings.layout.all_shards(self._name))
            record = QueueRecord(self._name, settings.encode(), self._record.version + 1)
            try:
                stored = self._retry(self._store.update_queue, record)
            except OutcomeUnknown:
                if self.refresh() != settings:
                    raise
                return settings
            if stored or self.refresh() == settings:
                self._record, self._settings = record, settings
                return settings

    def _load(self) -> tuple[QueueRecord, QueueSettings]:
        record = self._retry(self._store.load_queue, self._name)
        if record is None:
            raise QueueNotFound(
                f"queue {self._name!r} does not exist: create it with `shardq create {self._name}`"
            )
        return record, QueueSettings.decode(record.settings)
