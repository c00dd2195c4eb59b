"""Clients that move messages, cut anew with every attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import shardq

from .history import Phase
from .receiving import Receiving
from .role import name_of
from .side import target_of

__all__ = ["Moving"]

ATTEMPTS = 3
MANY_BYTES = 16 << 20  # which are moved in one call
LETTERS = 4  # one of so many messages goes by way of the dead letters
FORGOTTEN, LATE, REDRIVES = 0.05, 0.1, 0.1  # of the batches


class Moving(Receiving):
    """Moves what it receives in parts of any size, repeats what was not answered in other parts, and redrives.

    Where a message goes follows from its id, so that every mover repeats the same move.
    """

    verb = "carry"
    limits = (1, 3, 50, 100)

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease) as consumer:
            while not self.stopped.is_set():
                batch = self.receive(consumer)
                if batch:
                    self._carry(batch)
                if not batch or self.dice.random() < REDRIVES:
                    self._redrive()

    def _carry(self, batch: shardq.Batch) -> None:
        if self.dice.random() < LATE:
            self.pause(self.assignment.lease * self.dice.uniform(0.5, 1.2))
        for letters in (False, True):
            chosen = batch.part(message for message in batch if _is_letter(message) is letters)
            for part in self._cut(chosen):
                if self.dial.hurry or self.dice.random() > FORGOTTEN:
                    self._move(part, letters=letters)

    def _move(self, part: shardq.Batch, *, letters: bool, attempts: int = ATTEMPTS) -> None:
        bodies = [name_of(message.raw) for message in part]
        self.record.invoke("move", bodies)
        try:
            if letters:
                part.dead_letter("given up")
            else:
                part.forward(target_of(self.assignment.queue), atomic=False)
        except shardq.LeaseLost as error:
            self.record.outcome("move", Phase.LOST, bodies, note=error)
        except shardq.ShardqError as error:
            self.record.outcome("move", Phase.UNKNOWN, bodies, note=error)
            if attempts > 1:
                for each in self._cut(part):
                    self._move(each, letters=letters, attempts=attempts - 1)
        else:
            self.record.outcome("move", Phase.OK, bodies, note=f"{_bytes_of(part):,} bytes")

    def _cut(self, batch: shardq.Batch) -> Iterator[shardq.Batch]:
        """The batch in parts, of which each takes its messages from anywhere in it."""
        messages = self.dice.sample(list(batch), len(batch))
        while messages:
            everything = len(messages)
            few = [1, 2, 7] if _bytes_of(messages) < MANY_BYTES else []
            count = self.dice.choice([*few, everything])
            yield batch.part(messages[:count])
            messages = messages[count:]

    def _redrive(self) -> None:
        self.record.invoke("redrive")
        try:
            moved = self.queue.redrive(self.dice.choice([None, 1, 7, 30]))
        except shardq.ShardqError as error:
            self.record.outcome("redrive", Phase.UNKNOWN, note=error)
        else:
            self.record.outcome("redrive", Phase.OK, note=f"{moved} messages")


def _bytes_of(messages: Iterable[shardq.Message]) -> int:
    return sum(len(message.raw) for message in messages)


def _is_letter(message: shardq.Message) -> bool:
    bundle, position = message.id.rsplit(":", 2)[1:]
    return (int(bundle, 16) + int(position)) % LETTERS == 0
