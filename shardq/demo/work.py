"""What the processes of a run do: producers send their part of the flights, the workers' handler works on them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import current_process
from pathlib import Path

import msgspec

import shardq
from shardq.demo.dataset import DataUnavailable, read_rows
from shardq.demo.flight import FLIGHTS, FlightMessage, parse_flight
from shardq.demo.plan import Plan
from shardq.demo.records import Ack, Kill, RecordFile, Result, Sent, Tally, write_kill
from shardq.worker.child_processes import Parent

__all__ = ["ACKED", "LOST", "RECEIVED", "REDELIVERED", "SENT", "FlightHandler", "produce"]

SENT, RECEIVED, REDELIVERED, ACKED = "sent", "received", "redelivered", "acked"
LOST = "lost"  # received, and their lease expired before the ack
SEND = 1_000  # messages of one bulk send


def produce(parent: Parent, plan: Plan, place: int) -> None:
    """Send the rows of this producer, in bulk, and write down when the store had confirmed them."""
    first, last = plan.part(place)
    rows = read_rows(plan.data)
    for _ in islice(rows, first):
        pass
    messages, left, tally = (
        _messages(islice(rows, last - first), first + 1),
        last - first,
        Tally(plan.records),
    )
    with shardq.connect(plan.url) as client, RecordFile(plan.records / f"sent-{place}.jsonl") as records:
        producer = client.queue(plan.queue).producer(codec=FLIGHTS)
        parent.ready()
        while left and not parent.stopped:
            ids = producer.send_many(islice(messages, SEND))
            records.append(_sent(ids))
            tally.add(SENT, len(ids))
            left -= len(ids)


def _messages(rows: Iterator[list[str]], first: int) -> Iterator[FlightMessage]:
    for number, row in enumerate(rows, first):
        try:
            flight = parse_flight(row)
        except ValueError as error:
            raise DataUnavailable(f"row {number} of the flights cannot be read: {error}") from error
        yield FlightMessage(number, time.time(), flight)


def _sent(ids: Sequence[str]) -> list[Sent]:
    """How many went where: an id begins with the name of its shard."""
    now = time.time()
    shards = Counter(identity.rsplit(":", 2)[0] for identity in ids)
    return [_to_shard(now, name, messages) for name, messages in shards.items()]


def _to_shard(now: float, name: str, messages: int) -> Sent:
    _, time_shard, shard = name.split(":")
    return Sent(now, int(time_shard), int(shard), messages)


class FlightHandler(msgspec.Struct, frozen=True):
    """The handler of the workers: writes a result for each flight of a batch, then acks the batch.

    The worker that receives the ``kill_after``-th message kills itself when half of its results are written, as
    if the machine had lost its power: it has no time to ack anything, or to give anything back.
    """

    records: Path
    kill_after: int | None

    def __call__(self, batch: shardq.Batch) -> None:
        """Work on a batch."""
        now, number, tally = time.time(), time.monotonic_ns(), Tally(self.records)
        tally.add(REDELIVERED, sum(message.deliveries > 1 for message in batch))
        received = tally.add(RECEIVED, len(batch))
        results, half = [_result(message, number, now) for message in batch], len(batch) // 2
        with RecordFile(self.records / f"results-{os.getpid()}.jsonl") as file:
            file.append(results[:half])
            if self.kill_after is not None and received >= self.kill_after:
                _kill_this_worker(self.records, len(batch))
            file.append(results[half:])
        lost = _ack(batch)
        with RecordFile(self.records / f"acks-{os.getpid()}.jsonl") as file:
            file.append([Ack(number, time.time(), len(batch) - lost, lost)])
        tally.add(LOST, lost)
        tally.add(ACKED, len(batch) - lost)


def _kill_this_worker(records: Path, held: int) -> None:
    """Unless another one was killed before."""
    place = int(current_process().name.rpartition("-")[2])
    if write_kill(records, Kill(place, time.time(), held)):
        os.kill(os.getpid(), signal.SIGKILL)


def _ack(batch: shardq.Batch) -> int:
    """Ack a batch; returns how many of its messages are somebody else's by now."""
    try:
        batch.ack()
    except shardq.LeaseLost as error:
        return len(error.messages)
    return 0


def _result(message: shardq.Message, batch: int, received_at: float) -> Result:
    body: FlightMessage = message.body
    flight = body.flight
    return Result(
        row=body.row,
        carrier=flight.carrier,
        dep_delay=flight.dep_delay,
        arr_delay=flight.arr_delay,
        made_up=_made_up(flight.dep_delay, flight.arr_delay),
        deliveries=message.deliveries,
        sent_at=body.sent_at,
        received_at=received_at,
        batch=batch,
    )


def _made_up(dep_delay: int | None, arr_delay: int | None) -> int | None:
    return None if dep_delay is None or arr_delay is None else dep_delay - arr_delay
