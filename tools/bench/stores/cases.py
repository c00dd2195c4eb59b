"""What is measured, with which loads, and running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from .claims import claims
from .consumers import idle, memory, memory_is_known
from .latency import latency_fixed_rate, latency_process, latency_processes
from .load import Load, Size
from .result import Result, Sample, summarize
from .stage import Stage
from .throughput import end_to_end, from_threads, in_bulk, one_by_one, receives, sends
from .wording import FIXED_RATE, IDLE

__all__ = ["GROUPS", "cases_of", "run_cases"]

SMALL, USUAL, LARGE = 100, 512, 10_240  # bytes of a body
LARGE_SHARE = 5  # large bodies: so many times fewer of them
THREADS, LINGERS = 16, (0.0, 0.002)
CLAIM_SIZES = (100, 500)
HISTORY_BACKLOG = 10_000


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement, its unit and what it is given to do; ``rounds`` at most, for those that take long."""

    name: str
    unit: str
    measure: Callable[[Stage, Load], Sample]
    load: Load
    rounds: int = 100


def throughput_cases(size: Size) -> Iterator[Case]:
    """In the order in which they are shown."""
    threads = [Load(messages=size.threads, threads=THREADS, linger=linger) for linger in LINGERS]
    table: tuple[tuple[str, Callable[[Stage, Load], Sample], list[Load]], ...] = (
        ("send bulk", partial(sends, in_bulk), _varied(size, size.bulk)),
        ("send singles", partial(sends, one_by_one), _varied(size, size.singles)),
        ("send singles from threads", partial(sends, from_threads), threads),
        ("receive and ack", partial(receives, in_bulk), _varied(size, size.bulk, batches=(100, 1_000))),
        (
            "receive and ack singles",
            partial(receives, one_by_one),
            _varied(size, size.singles, sizes=(), batches=(100,)),
        ),
        ("end to end", end_to_end, _varied(size, size.bulk)),
    )
    for name, measure, loads in table:
        yield from (Case(name=name, unit="messages/s", measure=measure, load=load) for load in loads)


def _varied(
    size: Size, messages: int, sizes: Sequence[int] = (SMALL, LARGE), batches: Sequence[int] = ()
) -> list[Load]:
    """One thing changed at a time: the bodies' size, the batch, the number of processes."""
    usual = Load(messages=messages)
    if size.thin:
        return [usual]
    count = {LARGE: messages // LARGE_SHARE}
    return [
        usual,
        *(Load(messages=count.get(each, messages), body_bytes=each) for each in sizes),
        *(Load(messages=messages, batch=batch) for batch in batches),
        *(Load(messages=messages * processes, processes=processes) for processes in (2, 4)),
    ]


def latency_cases(size: Size) -> Iterator[Case]:
    """In the order in which they are shown."""
    closed = Load(messages=size.latencies, batch=1)
    sizes = (USUAL,) if size.thin else (SMALL, USUAL, LARGE)
    table: list[tuple[str, Callable[[Stage, Load], Sample], Load]] = [
        ("latency within a process", latency_process, closed),
        ("latency between processes", latency_processes, closed),
    ]
    for body_bytes in sizes:
        load = Load(body_bytes=body_bytes, rate=size.rate, seconds=size.rate_seconds, batch=100)
        table.append((FIXED_RATE, latency_fixed_rate, load))
    for name, measure, load in table:
        yield Case(name=name, unit="ms", measure=measure, load=load, rounds=3)


def scaling_cases(size: Size) -> Iterator[Case]:
    """In the order in which they are shown: how costs grow with the backlog, with the past, with time."""
    few = Load(claims=size.claims, batch=CLAIM_SIZES[0])
    past = Load(claims=size.claims, backlog=min(HISTORY_BACKLOG, size.backlogs[1]))
    change = msgspec.structs.replace
    table: list[tuple[str, Load, int]] = [
        *(
            ("claim", change(few, batch=batch, backlog=backlog), 5)
            for batch in CLAIM_SIZES
            for backlog in size.backlogs
        ),
        *(
            ("claim of singles", change(few, backlog=backlog, singles=True), 1)
            for backlog in (size.backlogs[1], size.backlogs[-1])
        ),
        *(
            ("claim after consumption", change(past, consumed=consumed, history=history), 3)
            for consumed, history in ((0, False), (size.consumed, False), (size.consumed, True))
        ),
    ]
    for name, load, rounds in table:
        yield Case(name=name, unit="ms", measure=claims, load=load, rounds=rounds)
    if memory_is_known():
        load = Load(messages=size.memory)
        yield Case(name="memory of a consumer", unit="x of start", measure=memory, load=load, rounds=1)
    load = Load(processes=size.idle_processes, seconds=size.idle_seconds)
    yield Case(name=IDLE, unit="% of a core", measure=idle, load=load, rounds=1)


GROUPS = {"throughput": throughput_cases, "latency": latency_cases, "scaling": scaling_cases}


def cases_of(size: Size, groups: Sequence[str]) -> list[Case]:
    """The cases of some groups, of all without any."""
    return [case for group in groups or GROUPS for case in GROUPS[group](size)]


def run_cases(
    cases: Sequence[Case], stage: Stage, rounds: int, progress: Callable[[str], None] = lambda _: None
) -> list[Result]:
    """A result for each case, from interleaved rounds: what disturbs the machine for a while disturbs all alike.

    Raises BenchmarkFailed.
    """
    samples: list[list[Sample]] = [[] for _ in cases]
    for number in range(rounds):
        for case, taken in zip(cases, samples, strict=True):
            if number < case.rounds:
                progress(f"round {number + 1} of {rounds}: {case.name}")
                taken.append(case.measure(stage, case.load))
    return [
        summarize(case.name, case.unit, case.load, taken) for case, taken in zip(cases, samples, strict=True)
    ]
