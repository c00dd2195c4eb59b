"""Where measurements take place: fresh queues, each gone when its measurement is over."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shardq
from shardq.storage.opening import HasUrl, check_between_processes

__all__ = ["Place", "Stage"]

LONG_LEASE = 600.0  # seconds: nothing is delivered twice, however slow the machine
FEW_TIME_SHARDS = 2  # as a run makes and deletes a hundred queues, whose files a server may keep for minutes


class Place(HasUrl, frozen=True):
    """A queue that any process can find."""

    url: str
    name: str

    @contextmanager
    def open(self) -> Iterator[shardq.Queue]:
        """The queue, over a connection of its own."""
        with shardq.connect(self.url) as client:
            yield client.queue(self.name)


class Stage:
    """Makes queues in the store of a URL or, without one, each in a new SQLite file in a temporary folder."""

    def __init__(self, url: str | None = None, *, folder: Path | None = None) -> None:
        if url is not None:
            check_between_processes(url, "a benchmark has several")
        self._url, self._folder = url, folder

    @contextmanager
    def queue(self, **settings: Any) -> Iterator[Place]:
        """A new, empty queue with long leases."""
        if self._url is not None:
            with _queue_in(self._url, settings) as place:
                yield place
            return
        with (
            tempfile.TemporaryDirectory(prefix="shardq-bench-", dir=self._folder) as folder,
            _queue_in(f"sqlite:///{folder}/queue.db", settings) as place,
        ):
            yield place


@contextmanager
def _queue_in(url: str, settings: dict[str, Any]) -> Iterator[Place]:
    name = f"bench-{secrets.token_hex(4)}"
    with shardq.connect(url) as client:
        chosen = {
            "visibility_timeout": LONG_LEASE,
            "max_deliveries": None,
            "time_shards": FEW_TIME_SHARDS,
            **settings,
        }
        client.create_queue(name, **chosen)
        try:
            yield Place(url, name)
        finally:
            client.delete_queue(name)
