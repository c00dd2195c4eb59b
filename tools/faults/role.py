"""A client that plays a part: what all of them have."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

import shardq
from shardq.client import Client

from .assignment import Assignment
from .dial import Dial
from .recorder import Recorder

__all__ = ["Role", "name_of"]

T = TypeVar("T")


class Role:
    def __init__(self, assignment: Assignment, dial: Dial, client: Client, stopped: threading.Event) -> None:
        self.assignment, self.dial, self.client, self.stopped = assignment, dial, client, stopped
        self.dice = random.Random(assignment.seed)
        self.record = Recorder(assignment, dial, client)
        self.queue = self.patiently(lambda: client.queue(assignment.queue))

    def run(self) -> None:
        """Play until the work is done, or until told to stop."""
        raise NotImplementedError

    def patiently(self, open_it: Callable[[], T]) -> T:
        """Open something, however long the store is away."""
        while True:
            try:
                return open_it()
            except shardq.ShardqError as error:
                if not error.retryable and not isinstance(error, shardq.StoreUnavailable):
                    raise
                self.pause(0.2)
                if self.stopped.is_set():
                    raise SystemExit from error

    def pause(self, seconds: float) -> None:
        if not self.dial.hurry:
            self.stopped.wait(seconds)


def name_of(body: bytes) -> str:
    """Return the message's name in the history; behind it is padding."""
    return body.decode().rstrip(" ")
