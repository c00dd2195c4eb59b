"""Clients of the queue whose messages ask for something: for a dedupe key, a unique key, or their turn in a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import shardq
from shardq.base.outgoing_message import OnConflict

from .asked import PERMITS, REPLACED, UNIQUE_KEYS, permits_of
from .history import Phase
from .receiving import Receiving
from .role import Role, name_of

__all__ = ["AT_THE_END", "Answering", "Asking", "Permitted"]

GROUPS = 3  # of each producer
AHEAD = 20  # messages that one of the clients has claimed ahead
AT_THE_END = 20  # messages of each producer, when the faults are over
FORGOTTEN, LATE, RELEASED, BLOCKED, UNBLOCKED = 0.05, 0.1, 0.1, 0.4, 0.05  # of the batches
CONFLICTS: Sequence[OnConflict] = ("keep", "keep", "raise")


class Asking(Role):
    """Sends messages with keys that other clients send, too, and messages of groups of its own."""

    verb = "ask"

    def run(self) -> None:
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        with self.queue.producer() as producer:
            while number < last and not self.stopped.is_set():
                self._send(producer, number)
                number += 1
                if self.dial.hurry:  # one by one they would take long on a busy machine
                    last = min(last, number + AT_THE_END)
                self.pause(self.dice.uniform(0.5, 1.5) / self.assignment.rate)

    def _send(self, producer: shardq.Producer, number: int) -> None:
        """Send the message of a number; its body begins with its key or group."""
        place = self.assignment.name.partition(".")[0]
        kinds = "dug" if self.queue._context.store.capabilities.groups else "du"
        kind, turn = kinds[number % len(kinds)], number // len(kinds)
        options: dict[str, Any] = {
            "delay": self.dice.choice([0.0, 0.0, 0.5]),
            "priority": self.dice.randrange(3),
        }
        if kind == "d":
            asked = f"d{number}"
            options["dedupe_key"] = asked
        elif kind == "u":
            asked = f"u{turn % UNIQUE_KEYS}"
            conflicts = ("replace",) if turn % UNIQUE_KEYS in REPLACED else CONFLICTS
            options |= {"unique_key": asked, "on_conflict": self.dice.choice(conflicts)}
        else:
            asked = options["group"] = f"g{place}{turn % GROUPS}"
        body = f"{asked}-{place}-{number}"
        self.record.invoke(self.verb, [body])
        try:
            identity = producer.send(body.encode(), **options)
        except shardq.ShardqError as error:
            sure = isinstance(error, shardq.StoreUnavailable | shardq.UniqueKeyTaken)
            self.record.outcome(self.verb, Phase.FAILED if sure else Phase.UNKNOWN, [body], note=error)
        else:
            self.record.outcome(self.verb, Phase.OK, [body], note=identity)


class Answering(Receiving):
    """Receives them, and acks them together, one by one, late, or not at all; or lets one block its group."""

    verb, ended = "answer", "finish"
    limits = (1, 1, 3, 20)

    def run(self) -> None:
        lease = self.assignment.lease
        prefetch = AHEAD if self.assignment.name.startswith("n1") else 0
        with self.queue.consumer(visibility_timeout=lease, prefetch=prefetch) as consumer:
            while not self.stopped.is_set():
                batch = self.receive(consumer)
                if batch:
                    self._answer(batch)
                if not batch or self.dice.random() < UNBLOCKED:
                    self._unblock()

    def _answer(self, batch: shardq.Batch) -> None:
        self.pause(self.dice.random() * 0.05)
        if self.dice.random() < LATE:
            self.pause(self.assignment.lease * self.dice.uniform(0.5, 1.5))
        grouped = [] if self.dial.hurry else [message for message in batch if message.group is not None]
        if grouped and self.dice.random() < BLOCKED:
            self._block(batch, self.dice.choice(grouped))
        elif self.dial.hurry or self.dice.random() > FORGOTTEN + RELEASED:
            cut = self.dice.choice([0, 1])
            self._finish(batch.part(batch[:cut]))
            self._finish(batch.part(batch[cut:]))
        elif self.dice.random() < RELEASED / (RELEASED + FORGOTTEN):
            self._finish(batch.part(batch[:1]))
            self._release(batch.part(batch[1:]))

    def _block(self, batch: shardq.Batch, message: shardq.Message) -> None:
        """Give up a message, and finish what is not of its group."""
        body = [name_of(message.raw)]
        self.record.invoke("block", body)
        try:
            message.dead_letter("given up")
        except shardq.ShardqError as error:
            self.record.outcome("block", Phase.UNKNOWN, body, note=error)
        else:
            self.record.outcome("block", Phase.OK, body)
        self._finish(batch.part(each for each in batch if each.group != message.group))

    def _unblock(self) -> None:
        self.record.invoke("unblock")
        try:
            self.queue.redrive()
        except shardq.ShardqError as error:
            self.record.outcome("unblock", Phase.UNKNOWN, note=error)
        else:
            self.record.outcome("unblock", Phase.OK)

    def _finish(self, part: shardq.Batch) -> None:
        """Ack; what was not acked for sure may have been."""
        ids = [message.id for message in part]
        if not ids:
            return
        self.record.invoke(self.ended, ids)
        try:
            part.ack()
        except shardq.ShardqError as error:
            self.record.outcome(self.ended, Phase.UNKNOWN, ids, note=error)
        else:
            self.record.outcome(self.ended, Phase.OK, ids)

    def _release(self, part: shardq.Batch) -> None:
        try:
            part.release(delay=self.dice.choice([0.0, 0.3]))
        except shardq.ShardqError:
            self.pause(0.1)


class Permitted(Role):
    """Takes a permit of a semaphore, keeps it for a while, also for longer than its lease, and gives it back."""

    def run(self) -> None:
        semaphore = self.client.semaphore(permits_of(self.assignment.queue), permits=PERMITS)
        while not self.stopped.is_set():
            self.record.invoke("take-permit")
            try:
                permit, lease = semaphore.acquire(timeout=2), semaphore.lease
            except shardq.ShardqError as error:
                self.record.outcome("take-permit", Phase.UNKNOWN, note=error)
                self.pause(0.1)
                continue
            self.record.outcome("take-permit", Phase.OK, note=f"{lease:g}")
            # Also when all hurry: who takes permits without a pause keeps an SQLite file from all others.
            self.stopped.wait(self.dice.choice([0.01, 0.05, lease * 1.2]))
            self.record.invoke("give-permit")
            try:
                permit.release()
            except shardq.ShardqError as error:
                self.record.outcome("give-permit", Phase.UNKNOWN, note=error)
            else:
                self.record.outcome("give-permit", Phase.OK)
