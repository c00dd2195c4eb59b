"""The check of a run's results against the data set."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.demo.delays import CarrierDelays, delays_by_carrier
from shardq.demo.expected import Expected
from shardq.demo.harvest import Harvest
from shardq.demo.records import Result
from shardq.demo.repeats import Repeats, find_repeats
from shardq.demo.run import Run
from shardq.demo.run_queue import Leftovers

__all__ = ["CarrierLine", "Check", "CheckLine", "check_run"]


class CheckLine(msgspec.Struct, frozen=True):
    """One thing that was checked, and a note on it for the reader."""

    what: str
    found: int
    expected: int
    good: bool
    note: str = ""


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
