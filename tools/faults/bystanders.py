"""What is done to queues beside the one under test, and seen of them."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import shardq
from shardq.base.clock import microseconds
from shardq.spark.parts import RunPart
from shardq.spark.runs import Run

from .schedule import Step

__all__ = ["Bystanders"]

HANDFUL, MANY = 50, 2_000  # messages of the bystander
BUNDLE_BYTES = 100_000
PIECE = 500  # messages of a huge purge that are sent at once
PAUSE = 0.1  # seconds between these
PATIENCE = 120.0  # seconds until a queue is purged, and until it delivers again
PASSING = (shardq.StoreUnavailable, shardq.OutcomeUnknown, shardq.PartialSend)

T = TypeVar("T")


class Bystanders:
    """Faults that meet other queues of the same store; what is found wrong there is added to the problems."""

    def __init__(self, client: shardq.Client, queue: str, *, huge: int) -> None:
        self.client, self.queue, self._huge = client, queue, huge
        self.problems: list[str] = []
        self.told: list[tuple[int, str]] = []  # what was done later than its step, and when
        self.over = threading.Event()  # the round is: end what goes on beside the other faults
        self._purging: threading.Thread | None = None

    def purge_bystander(self, _: Step) -> tuple[str, None]:
        """Fill and purge another queue, whose name starts like that of the queue under test."""
        bystander = self.client.queue(f"{self.queue}.bystander")
        with bystander.producer(bundle_messages=20) as producer:
            producer.send_many(f"bystander-{number}".encode() for number in range(50))
        return f"{bystander.purge()} messages", None

    def recreate_bystander(self, _: Step) -> tuple[str, None]:
        """Delete the other queue, create it again, and see that it holds what is sent then, and nothing else."""
        name = f"{self.queue}.bystander"
        with suppress(shardq.QueueNotFound):
            self._send(name, HANDFUL)
            self.client.delete_queue(name)
        with suppress(shardq.QueueExists):  # by an attempt that was not answered
            self.client.create_queue(name, shards=2, time_shards=2, max_deliveries=None)
        self._send(name, HANDFUL)
        self._expect(name, HANDFUL)
        return f"{HANDFUL} messages", None

    def purge_many(self, _: Step) -> tuple[str, None]:
        """Purge thousands that are due at one moment and were sent one by one."""
        name = f"{self.queue}.bystander"
        self.client.queue(name).purge()
        self._send_singles(name, MANY, delay=1.0)
        self._expect(name, MANY)
        purged = self.client.queue(name).purge()
        self._expect(name, 0)
        return f"{purged} messages", None

    def _send(self, name: str, count: int) -> None:
        with self.client.queue(name).producer(bundle_messages=1) as producer:
            producer.send_many(_bodies(count))

    def _send_singles(self, name: str, count: int, *, delay: float = 0.0) -> None:
        """Store messages of one moment, each in a bundle of its own, with few requests."""
        context = self.client.queue(name)._context
        due = context.store.now() + microseconds(delay)
        run = Run(
            context,
            secrets.token_hex(8),
            window=microseconds(PATIENCE),
            bundle_messages=1,
            bundle_bytes=BUNDLE_BYTES,
        )
        run.send(RunPart("all", "", 0, list(_bodies(count)), dues=[due] * count))

    def _expect(self, name: str, count: int) -> None:
        counts = self.client.queue(name).counts()
        if (found := counts.ready + counts.delayed + counts.in_flight) != count:
            self.problems.append(f"queue {name} held {found} messages, not {count}")

    def purge_huge(self, _: Step) -> tuple[str, None]:
        """Beside the other faults, send singles to one shard until the round is over, purge them, and use it again."""
        if self._purging is not None and self._purging.is_alive():
            return "still at it", None
        self._purging = threading.Thread(target=self._fill_and_purge, args=(f"{self.queue}.huge",))
        self._purging.start()
        return f"up to {self._huge} messages", None

    def finish(self) -> None:
        """Wait for what goes on beside the other faults; it ends when the round is over."""
        if self._purging is not None:
            self._purging.join()

    def _fill_and_purge(self, name: str) -> None:
        try:
            with suppress(shardq.QueueExists):
                self._patiently(
                    lambda: self.client.create_queue(name, shards=1, time_shards=1, max_deliveries=None)
                )
            sent = 0
            while sent < self._huge and not self.over.is_set():
                with suppress(*PASSING):
                    self._send_singles(name, PIECE)
                sent += PIECE
                self.over.wait(PAUSE)
            began, purged = time.monotonic(), self._patiently(lambda: self.client.queue(name).purge())
            self._tell(f"{purged} messages of one shard in {time.monotonic() - began:.1f} s")
            self._patiently(lambda: self._expect(name, 0))
            self._patiently(lambda: self._send(name, HANDFUL))
            self._expect_to_come(name)
        except shardq.ShardqError as error:
            self.problems.append(f"queue {name} could not be purged and used again: {error}")

    def _patiently(self, do: Callable[[], T]) -> T:
        """Do it again while passing faults keep it from being done."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return do()
            except PASSING:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _expect_to_come(self, name: str) -> None:
        got, until = set[str](), time.monotonic() + PATIENCE
        with self.client.queue(name).consumer() as consumer:
            while len(got) < HANDFUL and time.monotonic() < until:
                with suppress(*PASSING):
                    batch = consumer.receive(HANDFUL, wait=0.5)
                    got |= {message.id for message in batch}
                    batch.ack()
        if len(got) < HANDFUL:
            self.problems.append(f"queue {name} gave {len(got)} messages after its purge, not {HANDFUL}")

    def _tell(self, what: str) -> None:
        self.told.append((time.monotonic_ns(), what))


def _bodies(count: int) -> Iterator[bytes]:
    return (f"bystander-{number}".encode() for number in range(count))
