"""Clients that send."""

from __future__ import annotations

import shardq

from .history import Phase
from .role import Role, name_of

__all__ = ["Producing"]

RESENDS = 3
PADDING = (0, 0, 100, 1_000)  # bytes behind the name of a message


class Producing(Role):
    """Sends singles, bundles and delayed messages, at a rate, until its number of them is used up."""

    def run(self) -> None:
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        with self.queue.producer(bundle_messages=20) as producer:
            while number < last and not self.stopped.is_set():
                count = min(self.dice.choice([1, 1, 7, 50]), last - number)
                name = self.assignment.name.partition(".")[0]
                bodies = [f"{name}-{each}" for each in range(number, number + count)]
                number += count
                self._send(producer, bodies)
                self.pause(count / self.assignment.rate * self.dice.uniform(0.5, 1.5))

    def _send(self, producer: shardq.Producer, bodies: list[str]) -> None:
        delay = self.dice.choice([0.0, 0.0, 0.0, 0.5, 2.0])
        priority = self.dice.randrange(10)
        padding = b" " * self.dice.choice(PADDING)
        raw = [body.encode() + padding for body in bodies]
        self.record.invoke("send", bodies, seconds=delay)
        try:
            if len(raw) == 1:
                producer.send(raw[0], delay=delay, priority=priority)
            else:
                producer.send_many(raw, delay=delay, priority=priority)
        except shardq.PartialSend as error:
            self._send_the_rest(producer, bodies, error)
        except shardq.ShardqError as error:
            # Only StoreUnavailable says that nothing was stored; everything else may have been.
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome("send", Phase.FAILED if sure else Phase.UNKNOWN, bodies, note=error)
            self.pause(0.2)
        else:
            self.record.outcome("send", Phase.OK, bodies)

    def _send_the_rest(
        self, producer: shardq.Producer, bodies: list[str], partial: shardq.PartialSend
    ) -> None:
        """Send what was not stored again, under the same ids; what is not stored in the end is unknown."""
        unsent = partial.unsent
        for _ in range(RESENDS):
            self.pause(0.2)
            try:
                producer.send_many(unsent)
            except shardq.PartialSend as error:
                unsent = error.unsent
            except shardq.ShardqError:
                continue
            else:
                unsent = []
                break
        missing = {name_of(message.body) for message in unsent}
        stored = [body for body in bodies if body not in missing]
        self.record.outcome("send", Phase.OK if stored else Phase.UNKNOWN, stored, note=partial)
