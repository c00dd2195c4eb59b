"""The check finds whatever is off."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shardq.demo.check import Check, check_run
from shardq.demo.dataset import Expected
from shardq.demo.plan import Plan
from shardq.demo.records import Ack, Harvest, Kill, RecordFile, Result, Sent, WorkerRecords, read_records
from shardq.demo.run import Run
from shardq.demo.workplace import Leftovers

FILE = [Expected("UA", 2, 11), Expected("DL", None, None), Expected("UA", -3, -20), Expected("B6", 5, None)]
NOTHING = Leftovers(0, 0, 0, 0)
KILL = Kill(0, 2.0, 2)


def check(harvest: Harvest, *, left: Leftovers = NOTHING, kill: Kill | None = None, again: int = 0) -> Check:
    here = Path()
    plan = Plan(
        url="sqlite:///unused.db",
        queue="flights",
        data=here,
        records=here,
        messages=len(FILE),
        producers=1,
        workers=2,
        shards=1,
        time_shards=1,
        time_shard_seconds=1.0,
        batch=2,
        visibility_timeout=1.0,
        kill=kill is not None,
    )
    return check_run(Run(plan, 0.0, 9.0, kill, again), harvest, FILE, left)


def result(row: int, batch: int = 1) -> Result:
    flight = FILE[row - 1]
    return Result(row, flight.carrier, flight.dep_delay, flight.arr_delay, None, 1, 1.0, 2.0, batch)


def worker(*batches: list[int], lost: int = 0, acked: bool = True) -> WorkerRecords:
    results = [result(row, number) for number, rows in enumerate(batches, 1) for row in rows]
    acks = {
        number: Ack(number, 3.0, len(rows) - lost, lost) for number, rows in enumerate(batches, 1) if acked
    }
    return WorkerRecords(results, acks)


def harvest(*workers: WorkerRecords, sent: int = 4) -> Harvest:
    return Harvest([Sent(1.0, 0, 0, sent)], list(workers))


def good(**changes: object) -> Harvest:
    """A complete run, but for these changes of its first result."""
    first = worker([1, 2])
    results = [msgspec.structs.replace(first.results[0], **changes), *first.results[1:]]
    return harvest(WorkerRecords(results, first.acks), worker([3, 4]))


UNLIKE = "results unlike the file"
CASES: dict[str, tuple[Check, list[str]]] = {
    "a complete run": (check(good()), []),
    "a missing result": (check(harvest(worker([1, 2]), worker([4]))), ["flights processed", "UA"]),
    "another arrival": (check(good(arr_delay=12)), [UNLIKE, "UA"]),
    "another departure": (check(good(dep_delay=None)), [UNLIKE]),
    "another carrier": (check(good(carrier="WN")), [UNLIKE, "UA", "WN"]),
    "another row": (check(good(row=99)), ["flights processed", UNLIKE]),
    "an acked flight that was worked again": (
        check(harvest(worker([1, 2]), worker([3, 4], [1]))),
        ["worked twice, unexplained"],
    ),
    "a kill explains what was worked twice": (
        check(harvest(worker([1], acked=False), worker([3, 4], [1, 2])), kill=KILL, again=2),
        [],
    ),
    "a lost lease explains what was worked twice": (
        check(harvest(worker([1, 2], lost=2), worker([3, 4], [1, 2]))),
        [],
    ),
    "messages of a killed worker that did not come back": (
        check(good(), kill=KILL, again=1),
        ["delivered again"],
    ),
    "flights that were not sent": (check(harvest(worker([1, 2]), worker([3, 4]), sent=3)), ["flights sent"]),
}


@pytest.mark.parametrize(("found", "failed"), CASES.values(), ids=CASES)
def test_whatever_is_off_is_found_and_nothing_else(found: Check, failed: list[str]) -> None:
    named = [line.what for line in found.lines] + [line.carrier for line in found.carriers]
    are_good = [line.good for line in found.lines] + [line.good for line in found.carriers]
    assert [name for name, is_good in zip(named, are_good, strict=True) if not is_good] == failed
    assert found.good is (not failed)


@pytest.mark.parametrize("state", ["ready", "delayed", "in_flight", "dead"])
def test_a_message_left_behind_is_found(state: str) -> None:
    found = check(good(), left=msgspec.structs.replace(NOTHING, **{state: 1}))
    assert [line.good for line in found.lines].count(False) == 1


def test_a_line_that_a_killed_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with RecordFile(path) as file:
        file.append([result(1), result(2)])
    with path.open("ab") as torn:
        torn.write(b'[3,"UA",-3')
    assert [each.row for each in read_records(path, Result)] == [1, 2]
