"""A floor: one job, done by shardq and by bare statements, in turn in every round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import msgspec

from ..rounds import BODY_BYTES
from ..singles import SENDERS
from ..stores.load import bodies
from ..usage import Usage

BODY = next(bodies(1, BODY_BYTES))
LEASE = 600_000_000  # microseconds
JOINED = f"an insert for all {SENDERS}, one after the other"
Held = TypeVar("Held")


class Size(msgspec.Struct, frozen=True):
    """So much is done: ``few`` messages one by one; ``singles``, sent singly and received ``batch`` at a time; bundles.

    ``bundles`` have ``batch`` messages each. Idle consumers are in so many ``processes`` for so many ``seconds``.
    """

    few: int = 1_000
    singles: int = 2_500
    bundles: int = 100
    batch: int = 500
    processes: int = 10
    seconds: float = 15.0


FULL, QUICK = Size(), Size(few=200, singles=1_000, bundles=20, seconds=5.0)
TINY = Size(few=16, singles=20, bundles=2, batch=10, processes=1, seconds=1.0)


class Taken(msgspec.Struct, frozen=True):
    """What one round took: messages a second, and microseconds of processor for each message.

    Of idle consumers: percent of a core, all in all and of both sides. ``server`` is None where no server is known.
    """

    value: float
    client: float
    server: float | None


Measure: TypeAlias = Callable[[], Taken]


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """``kind`` is what asked.py calls the job; ``own`` is shardq's way, ``bare`` has the others by what they are."""

    kind: str
    own: Measure
    bare: Mapping[str, Measure]
    is_rate: bool = True


class Measured(msgspec.Struct, frozen=True):
    """A floor with what each round took: of shardq, and of each of the others."""

    floor: Floor
    own: tuple[Taken, ...]
    bare: dict[str, tuple[Taken, ...]]


class Work(msgspec.Struct, frozen=True):
    """What is timed for so many messages; what is done before and after it is not."""

    messages: int
    run: Callable[[], object]
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None


def timed(work: Work, usage: Usage) -> Taken:
    """Do it once, on a server that has written what came before to its files."""
    work.before()
    if usage.settle is not None:
        usage.settle()
    used, serving, began = usage.own_seconds(), usage.other_seconds(), time.perf_counter()
    work.run()
    seconds = time.perf_counter() - began
    used, serving = usage.own_seconds() - used, usage.other_seconds() - serving
    work.after()
    each = 1e6 / work.messages
    return Taken(work.messages / seconds, used * each, serving * each if usage.processes else None)


def measure(floors: Sequence[Floor], rounds: int, say: Callable[[str], None]) -> list[Measured]:
    """Rounds of all floors, every second one in the reverse order.

    Of rates one more comes first, and does not count.
    """
    found: list[list[dict[str, Taken]]] = [[] for _ in floors]
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}" if number else "a round that does not count")
        for floor, taken in zip(floors, found, strict=True):
            if number or floor.is_rate:
                taken.append(_round(floor, backwards=number % 2 == 0))
    return [_measured(floor, taken[-rounds:]) for floor, taken in zip(floors, found, strict=True)]


def _round(floor: Floor, *, backwards: bool) -> dict[str, Taken]:
    measures = list({"": floor.own, **floor.bare}.items())
    return {name: take() for name, take in (reversed(measures) if backwards else measures)}


def _measured(floor: Floor, rounds: Sequence[Mapping[str, Taken]]) -> Measured:
    def all_of(name: str) -> tuple[Taken, ...]:
        return tuple(taken[name] for taken in rounds)

    return Measured(floor, all_of(""), {name: all_of(name) for name in floor.bare})


def in_turn(times: int, claim: Callable[[], Held], ack: Callable[[Held], object]) -> Callable[[], None]:
    """Claim and ack, so many times."""

    def work() -> None:
        for _ in range(times):
            ack(claim())

    return work


def meanwhile(times: int, claim: Callable[[], Held], ack: Callable[[Held], object]) -> Callable[[], None]:
    """The same, with the next claim made while another thread acks the one before."""

    def work() -> None:
        with ThreadPoolExecutor(1) as acks:
            acked = [acks.submit(ack, claim())]
            for _ in range(times - 1):
                held = claim()
                acked.pop().result()
                acked.append(acks.submit(ack, held))
            acked.pop().result()

    return work


def repeated(times: int, work: Callable[[], object]) -> Callable[[], None]:
    """The same so many times."""

    def run() -> None:
        for _ in range(times):
            work()

    return run


def by_threads(count: int, threads: int, send: Callable[[], object]) -> Callable[[], None]:
    """Send so many messages, each thread its share."""

    def share(number: int) -> None:
        for _ in range(number, count, threads):
            send()

    def work() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, range(threads)))

    return work


def check(found: int, wanted: int) -> None:
    """What was to be changed was changed; a floor that does less is none."""
    if found != wanted:
        raise RuntimeError(f"{found} were changed and {wanted} were to be")
