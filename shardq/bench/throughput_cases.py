"""The measurements of throughput: sends, bulk reads with acks, both together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shardq.bench.case import Case
from shardq.bench.load import Load
from shardq.bench.measurements.end_to_end import end_to_end
from shardq.bench.measurements.receive_bulk import receive_bulk
from shardq.bench.measurements.receive_singles import receive_singles
from shardq.bench.measurements.send_bulk import send_bulk
from shardq.bench.measurements.send_singles import send_singles
from shardq.bench.measurements.send_threads import send_threads
from shardq.bench.result import Sample
from shardq.bench.size import Size
from shardq.bench.stage import Stage

__all__ = ["throughput_cases"]

SMALL, USUAL, LARGE = 100, 512, 10_240
LARGE_SHARE = 5  # large bodies: so many times fewer of them
THREADS = 16
LINGERS = (0.0, 0.002)


def throughput_cases(size: Size) -> Iterator[Case]:
    """In the order in which they are shown."""
    for load in _varied(size, size.bulk):
        yield _case("send bulk", send_bulk, load)
    for load in _varied(size, size.singles):
        yield _case("send singles", send_singles, load)
    for linger in LINGERS:
        load = Load(messages=size.threads, threads=THREADS, linger=linger)
        yield _case("send singles from threads", send_threads, load)
    for load in _varied(size, size.bulk, batches=(100, 500, 1_000)):
        yield _case("receive and ack", receive_bulk, load)
    for load in _varied(size, size.singles, sizes=(USUAL,), batches=(100, 500)):
        yield _case("receive and ack singles", receive_singles, load)
    for load in _varied(size, size.bulk):
        yield _case("end to end", end_to_end, load)


def _case(name: str, measure: Callable[[Stage, Load], Sample], load: Load) -> Case:
    return Case(name=name, unit="messages/s", measure=measure, load=load)


def _varied(
    size: Size,
    messages: int,
    sizes: tuple[int, ...] = (SMALL, USUAL, LARGE),
    batches: tuple[int, ...] = (500,),
) -> Iterator[Load]:
    """One thing changed at a time: the bodies' size, the batch, the number of processes."""
    usual = Load(messages=messages)
    yield usual
    if size.thin:
        return
    for body_bytes in sizes:
        if body_bytes != USUAL:
            count = messages // LARGE_SHARE if body_bytes == LARGE else messages
            yield Load(messages=count, body_bytes=body_bytes)
    for batch in batches:
        if batch != usual.batch:
            yield Load(messages=messages, batch=batch)
    for processes in (2, 4):
        yield Load(messages=messages * processes, processes=processes)
