"""Clients that send."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import shardq

from .history import Phase
from .role import Role, name_of

__all__ = ["Producing", "Supplying"]

RESENDS = 3
FORKS = 0.02  # of single messages are sent by a forked child
HANGING = 120.0  # seconds
PADDING = (0, 0, 100, 1_000)  # bytes behind the name of a message
LARGE = (590_000, 1_000_000)  # bytes of a large message of the side queue
LARGE_SENDS, LARGE_BYTES = 2, 28 << 20  # of a round, and together in each; more than 16 MiB go the same way
LARGE_FROM = 50  # messages in a send that may have large ones


class Producing(Role):
    """Sends singles, bundles and delayed messages, at a rate, until its number of them is used up."""

    verb = "send"

    def run(self) -> None:
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        with self.queue.producer(bundle_messages=20) as producer:
            while number < last and not self.stopped.is_set():
                sizes = [50] if self.dial.hurry else [1, 1, 7, 50]
                count = min(self.dice.choice(sizes), last - number)
                name = self.assignment.name.partition(".")[0]
                bodies = [f"{name}-{each}" for each in range(number, number + count)]
                number += count
                self.step(partial(self._send, producer, bodies))
                self.pause(count / self.assignment.rate * self.dice.uniform(0.5, 1.5))

    def paddings(self, count: int) -> list[int]:
        """Return the bytes behind the name of each message of a send."""
        return [self.dice.choice(PADDING)] * count

    def _send(self, producer: shardq.Producer, bodies: list[str]) -> None:
        delay = self.dice.choice([0.0, 0.0, 0.0, 0.5, 2.0])
        priority = self.dice.randrange(10)
        sizes = self.paddings(len(bodies))
        raw = [body.encode() + b" " * size for body, size in zip(bodies, sizes, strict=True)]
        self.record.invoke(self.verb, bodies, seconds=delay)
        try:
            if len(raw) == 1 and self.dice.random() < FORKS and not self.dial.hurry:
                self._send_in_a_child(producer, raw[0], delay=delay, priority=priority)
            elif len(raw) == 1:
                producer.send(raw[0], delay=delay, priority=priority)
            else:
                producer.send_many(raw, delay=delay, priority=priority)
        except shardq.PartialSend as error:
            self._send_the_rest(producer, bodies, error)
        except shardq.ShardqError as error:
            # Only StoreUnavailable says that nothing was stored; everything else may have been.
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome(self.verb, Phase.FAILED if sure else Phase.UNKNOWN, bodies, note=error)
            self.pause(0.2)
        else:
            self.record.outcome(self.verb, Phase.OK, bodies)

    def _send_in_a_child(
        self, producer: shardq.Producer, body: bytes, *, delay: float, priority: int
    ) -> None:
        """Send with what a forked child inherits; one that hangs ends this client, which the campaign reports."""
        child = os.fork()
        if not child:
            try:
                producer.send(body, delay=delay, priority=priority)
            except BaseException:
                os._exit(1)
            os._exit(0)
        until = time.monotonic() + HANGING
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                raise RuntimeError("a forked child hangs in send")
            time.sleep(0.01)
        if ended[1]:
            raise shardq.OutcomeUnknown("a forked child could not send")

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
        self.record.outcome(self.verb, Phase.OK if stored else Phase.UNKNOWN, stored, note=partial)


class Supplying(Producing):
    """Sends to the side queue, now and then so much that one move of it is many MiB.

    Only the first client does so: one that replaces it does not know how much was sent before.
    """

    verb = "supply"
    _large_sends = LARGE_SENDS

    def paddings(self, count: int) -> list[int]:
        few = super().paddings(count)
        if count < LARGE_FROM or self.dial.hurry or self.assignment.first or not self._large_sends:
            return few
        self._large_sends -= 1
        size = self.dice.randrange(*LARGE)
        large = min(count, LARGE_BYTES // size + 1)
        return [size] * large + few[large:]
