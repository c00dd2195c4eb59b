"""A client that plays a part: what all of them have."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import shardq
from shardq.base.waits import Flag
from shardq.client import Client

from .assignment import Assignment
from .dial import Dial
from .recorder import Recorder

__all__ = ["Interrupt", "Role", "name_of"]

T = TypeVar("T")


class Interrupt(BaseException):
    """Raised at any moment of a step, by the handler of a signal."""


class Role:
    def __init__(self, assignment: Assignment, dial: Dial, client: Client, stopped: Flag) -> None:
        self.assignment, self.dial, self.client, self.stopped = assignment, dial, client, stopped
        self.dice = random.Random(assignment.seed)
        self.record = Recorder(assignment, dial, client)
        self._in_step = False
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

    def step(self, do: Callable[[], object]) -> None:
        """Do something that may be interrupted at any moment; what was not answered by then is unknown."""
        with suppress(Interrupt):
            try:
                self._in_step = True
                do()
            finally:
                self._in_step = False

    def interrupt(self) -> None:
        """Interrupt the step at hand, if there is one and it was not yet. For the handler of a signal."""
        if self._in_step:
            self._in_step = False
            raise Interrupt

    def pause(self, seconds: float) -> None:
        if not self.dial.hurry:
            self.stopped.wait(seconds)


def name_of(body: bytes) -> str:
    """Return the message's name in the history; behind it is padding."""
    return body.decode().rstrip(" ")
