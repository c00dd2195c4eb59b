"""The check of a run's results against the data set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from shardq.demo.dataset import Expected
from shardq.demo.records import Harvest, Result, WorkerRecords
from shardq.demo.run import Run
from shardq.demo.workplace import Leftovers

__all__ = [
    "CarrierDelays",
    "CarrierLine",
    "Check",
    "CheckLine",
    "Repeats",
    "check_run",
    "delays_by_carrier",
    "find_repeats",
]


class CheckLine(msgspec.Struct, frozen=True):
    """One thing that was checked, and a note on it for the reader."""

    what: str
    found: int
    expected: int
    good: bool
    note: str = ""


class CarrierDelays(msgspec.Struct):
    """A carrier's flights and their arrival delays, in minutes; flights that never arrived have none."""

    flights: int = 0
    arrived: int = 0
    total: int = 0
    longest: int | None = None

    def add(self, delay: int | None) -> None:
        """Count one flight in."""
        self.flights += 1
        if delay is not None:
            self.arrived += 1
            self.total += delay
            self.longest = delay if self.longest is None else max(self.longest, delay)

    @property
    def mean(self) -> float | None:
        """The mean delay; None when no flight arrived."""
        return self.total / self.arrived if self.arrived else None


class CarrierLine(msgspec.Struct, frozen=True):
    """A carrier's delays by the messages and by the file; None where it has no flights at all."""

    carrier: str
    messages: CarrierDelays | None
    file: CarrierDelays | None

    @property
    def good(self) -> bool:
        """True when both are the same."""
        return self.messages == self.file


class Check(msgspec.Struct, frozen=True):
    """Everything that was checked."""

    lines: list[CheckLine]
    carriers: list[CarrierLine]

    @property
    def good(self) -> bool:
        """True when nothing is off."""
        return all(line.good for line in self.lines) and all(line.good for line in self.carriers)


class Repeats(msgspec.Struct, frozen=True):
    """Flights with more than one result, by the reason."""

    killed: int  # a worker was killed between the result and the ack
    lease_lost: int  # a worker was told at the ack that its lease had expired
    unexplained: int  # neither: acked, and delivered again nevertheless

    @property
    def total(self) -> int:
        """All flights that were worked more than once."""
        return self.killed + self.lease_lost + self.unexplained


def check_run(run: Run, harvest: Harvest, expected: Sequence[Expected], left: Leftovers) -> Check:
    """Compare what the workers wrote with what the file says, and see that nothing is left behind."""
    results = {result.row: result for result in harvest.results()}
    lines = [
        _equal("flights sent", sum(record.messages for record in harvest.sent), len(expected)),
        _complete(results, len(expected)),
        _different(harvest, expected),
        *_repeats(run, harvest),
        *_left(left),
    ]
    return Check(lines, _carriers(results, expected))


def _equal(what: str, found: int, expected: int, note: str = "") -> CheckLine:
    return CheckLine(what, found, expected, found == expected, note)


def _complete(results: dict[int, Result], flights: int) -> CheckLine:
    missing = [row for row in range(1, flights + 1) if row not in results]
    shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    note = f"missing rows: {shown}" if missing else "row numbers complete"
    return CheckLine(
        "flights processed", len(results), flights, not missing and len(results) == flights, note
    )


def _different(harvest: Harvest, expected: Sequence[Expected]) -> CheckLine:
    """Every result counts here, those of repeated work too."""
    different = sum(not _as_expected(result, expected) for result in harvest.results())
    return _equal("results unlike the file", different, 0)


def _as_expected(result: Result, expected: Sequence[Expected]) -> bool:
    if not 1 <= result.row <= len(expected):
        return False
    row = expected[result.row - 1]
    found = (result.carrier, result.dep_delay, result.arr_delay)
    return found == (row.carrier, row.dep_delay, row.arr_delay)


def _repeats(run: Run, harvest: Harvest) -> list[CheckLine]:
    repeats = find_repeats(harvest)
    lines = [_equal("worked twice, unexplained", repeats.unexplained, 0, _reasons(repeats))]
    if run.plan.kill:
        lines.append(_came_back(run))
    return lines


def _reasons(repeats: Repeats) -> str:
    reasons = {"the kill": repeats.killed, "a lost lease": repeats.lease_lost}
    return ", ".join(f"{count:,} explained by {why}" for why, count in reasons.items() if count)


def _came_back(run: Run) -> CheckLine:
    if run.kill is None:
        return CheckLine("workers killed", 0, 1, good=False)
    held, note = run.kill.held, f"held by worker {run.kill.place} when killed"
    return CheckLine("delivered again", run.redelivered, held, run.redelivered >= held, note)


def _left(left: Leftovers) -> list[CheckLine]:
    return [
        _equal("left in queue: ready", left.ready, 0),
        _equal("left in queue: delayed", left.delayed, 0),
        _equal("left in queue: in flight", left.in_flight, 0),
        _equal("dead letters", left.dead, 0),
    ]


def _carriers(results: dict[int, Result], expected: Sequence[Expected]) -> list[CarrierLine]:
    messages = delays_by_carrier((result.carrier, result.arr_delay) for result in results.values())
    file = delays_by_carrier((row.carrier, row.arr_delay) for row in expected)
    return [CarrierLine(name, messages.get(name), file.get(name)) for name in sorted({*messages, *file})]


def delays_by_carrier(flights: Iterable[tuple[str, int | None]]) -> dict[str, CarrierDelays]:
    """The delays of each carrier, by its code, in alphabetical order, of flights given as carrier and delay."""
    carriers: dict[str, CarrierDelays] = {}
    for carrier, delay in flights:
        carriers.setdefault(carrier, CarrierDelays()).add(delay)
    return dict(sorted(carriers.items()))


def find_repeats(harvest: Harvest) -> Repeats:
    """Count the flights that were worked more than once."""
    reasons: defaultdict[int, list[str]] = defaultdict(list)
    for worker in harvest.workers:
        fates = {batch: _fate(worker, batch) for batch in {result.batch for result in worker.results}}
        for result in worker.results:
            reasons[result.row].append(fates[result.batch])
    again = [fates for fates in reasons.values() if len(fates) > 1]
    killed = sum("killed" in fates for fates in again)
    lost = sum("lost" in fates and "killed" not in fates for fates in again)
    return Repeats(killed, lost, len(again) - killed - lost)


def _fate(worker: WorkerRecords, batch: int) -> str:
    ack = worker.acks.get(batch)
    if ack is None:
        return "killed"
    return "lost" if ack.lost else "acked"
