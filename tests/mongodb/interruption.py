"""A client that is interrupted before one of its commands, while somebody else acts or for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pymongo
import pytest
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from shardq.storage.mongodb import session
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse

__all__ = ["Interruption", "Killed", "interrupted_client"]


def _nothing() -> None:
    """Do nothing."""


class Killed(BaseException):
    """Raised where a client dies."""


class Interruption(CommandListener):
    """Does something before the command with a number, counted from when it is told to."""

    def __init__(self) -> None:
        self._at = -1
        self._do: Callable[[], object] = _nothing
        self.came = False  # the command with the number
        self.commands: list[str] = []
        self.synced: list[str] = []  # those of them that wait for disks

    @contextmanager
    def before(self, number: int, do: Callable[[], object]) -> Iterator[None]:
        """Let that be done before the command with this number, the first of which is 0."""
        self._at, self._do, self.came = number, do, False
        self.commands.clear()
        self.synced.clear()
        try:
            yield
        finally:
            self._at = -1

    def again(self, later: int, do: Callable[[], object]) -> None:
        """Let that be done before another command too, so many after this one."""
        self._at, self._do, self.came = self._at + later, do, False

    def started(self, event: CommandStartedEvent) -> None:
        if self._at >= 0:
            self.commands.append(event.command_name)
            if event.command.get("writeConcern", {}).get("j"):
                self.synced.append(event.command_name)
            if len(self.commands) == self._at + 1:
                self.came = True
                self._do()

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing is done after a command."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing is done after a command."""


def interrupted_client(url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[MongoStore, Interruption]:
    """Open a store whose commands can be interrupted."""
    interruption = Interruption()
    store = MongoStore(parse(url))
    with monkeypatch.context() as patched:
        connect = pymongo.MongoClient
        patched.setattr(
            session,
            "MongoClient",
            lambda *args, **options: connect(*args, event_listeners=[interruption], **options),
        )
        store.now()
    return store, interruption
