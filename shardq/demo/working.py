"""A worker process: bulk reads, results written before the ack, acks by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

import shardq
from shardq.demo.board import Board
from shardq.demo.flight import FLIGHTS, FlightMessage
from shardq.demo.plan import Plan
from shardq.demo.records import Ack, RecordFile, Result

__all__ = ["work"]

WAIT = 0.25  # seconds to wait for messages before looking whether it is over


class Desk(msgspec.Struct, frozen=True):
    """What a worker has before it."""

    plan: Plan
    board: Board
    place: int
    results: RecordFile
    acks: RecordFile


def work(plan: Plan, board: Board, place: int) -> None:
    """Work batches until the board says that it is over."""
    with (
        _desk(plan, board, place) as desk,
        shardq.connect(plan.url) as client,
        client.queue(plan.queue).consumer(codec=FLIGHTS) as consumer,
    ):
        board.workers_ready[place] = 1
        board.wait_for_start()
        number = 0
        while not board.stopped:
            if batch := consumer.receive(plan.batch, wait=WAIT):
                number += 1
                _work_batch(desk, batch, number)


@contextmanager
def _desk(plan: Plan, board: Board, place: int) -> Iterator[Desk]:
    folder = plan.records
    with (
        RecordFile(folder / f"results-{place}.jsonl") as results,
        RecordFile(folder / f"acks-{place}.jsonl") as acks,
    ):
        yield Desk(plan, board, place, results, acks)


def _work_batch(desk: Desk, batch: shardq.Batch, number: int) -> None:
    now, board, place = time.time(), desk.board, desk.place
    board.redelivered[place] += sum(message.deliveries > 1 for message in batch)
    board.received[place] += len(batch)
    half = len(batch) // 2
    desk.results.append([_result(message, number, now) for message in batch[:half]])
    if not board.killed and sum(board.received) >= desk.plan.kill_after:
        board.halted[place] = len(batch)
        board.wait_to_be_killed()
        board.halted[place] = 0
    desk.results.append([_result(message, number, now) for message in batch[half:]])
    lost = _ack(batch)
    acked = len(batch) - lost
    desk.acks.append([Ack(number, time.time(), acked, lost)])
    board.lost[place] += lost
    board.acked[place] += acked


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
