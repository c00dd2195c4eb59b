"""The check finds whatever is off."""

import msgspec
import pytest

from shardq.demo.check import check_run
from shardq.demo.dataset import Expected
from shardq.demo.plan import Plan
from shardq.demo.records import Ack, Harvest, Kill, RecordFile, Result, Sent, WorkerRecords, read_records
from shardq.demo.run import Run
from shardq.demo.workplace import Leftovers

FILE = [Expected("UA", 2, 11), Expected("DL", None, None), Expected("UA", -3, -20), Expected("B6", 5, None)]
NOTHING = Leftovers(0, 0, 0, 0)


def a_run(tmp_path, *, kill=None, redelivered=0):
    plan = Plan(
        url="sqlite:///unused.db",
        queue="flights",
        data=tmp_path,
        records=tmp_path,
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
    return Run(plan, 0.0, 9.0, kill, redelivered)


def a_result(row, *, batch, deliveries=1):
    flight = FILE[row - 1]
    return Result(row, flight.carrier, flight.dep_delay, flight.arr_delay, None, deliveries, 1.0, 2.0, batch)


def worker(*batches, lost=0, acked=True):
    results = [a_result(row, batch=number) for number, rows in enumerate(batches, 1) for row in rows]
    acks = {
        number: Ack(number, 3.0, len(rows) - lost, lost) for number, rows in enumerate(batches, 1) if acked
    }
    return WorkerRecords(results, acks)


def harvest(*workers, sent=4):
    return Harvest([Sent(1.0, 0, 0, sent)], list(workers))


def failed(check):
    return [line.what for line in check.lines if not line.good] + [
        line.carrier for line in check.carriers if not line.good
    ]


def changed(good, **changes):
    """The same harvest with the first result changed."""
    first, *rest = good.workers[0].results
    results = [msgspec.structs.replace(first, **changes), *rest]
    return Harvest(good.sent, [WorkerRecords(results, good.workers[0].acks), *good.workers[1:]])


@pytest.fixture
def good():
    return harvest(worker([1, 2]), worker([3, 4]))


def test_a_complete_run_passes(good, tmp_path):
    check = check_run(a_run(tmp_path), good, FILE, NOTHING)

    assert check.good
    assert [(line.carrier, line.messages.flights) for line in check.carriers] == [
        ("B6", 1),
        ("DL", 1),
        ("UA", 2),
    ]
    assert check.carriers[2].messages.mean == -4.5
    assert check.carriers[1].messages.mean is None


def test_a_missing_result_is_found(tmp_path):
    check = check_run(a_run(tmp_path), harvest(worker([1, 2]), worker([4])), FILE, NOTHING)

    assert failed(check) == ["flights processed", "UA"]
    assert "missing rows: 3" in check.lines[1].note


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"arr_delay": 12}, ["results unlike the file", "UA"]),
        ({"dep_delay": None}, ["results unlike the file"]),
        ({"carrier": "WN"}, ["results unlike the file", "UA", "WN"]),
        ({"row": 99}, ["flights processed", "results unlike the file"]),
    ],
)
def test_an_altered_result_is_found(good, tmp_path, changes, found):
    assert failed(check_run(a_run(tmp_path), changed(good, **changes), FILE, NOTHING)) == found


def test_an_acked_flight_that_was_worked_again_is_found(tmp_path):
    check = check_run(a_run(tmp_path), harvest(worker([1, 2]), worker([3, 4], [1])), FILE, NOTHING)

    assert failed(check) == ["worked twice, unexplained"]


def test_a_kill_explains_what_was_worked_twice(tmp_path):
    run = a_run(tmp_path, kill=Kill(0, 2.0, 2), redelivered=2)
    check = check_run(run, harvest(worker([1], acked=False), worker([3, 4], [1, 2])), FILE, NOTHING)

    assert check.good
    assert check.lines[3].note == "1 explained by the kill"


def test_a_lost_lease_explains_what_was_worked_twice(tmp_path):
    check = check_run(a_run(tmp_path), harvest(worker([1, 2], lost=2), worker([3, 4], [1, 2])), FILE, NOTHING)

    assert check.good
    assert check.lines[3].note == "2 explained by a lost lease"


def test_a_killed_worker_whose_messages_did_not_come_back_is_found(good, tmp_path):
    run = a_run(tmp_path, kill=Kill(0, 2.0, 2), redelivered=1)

    assert failed(check_run(run, good, FILE, NOTHING)) == ["delivered again"]


@pytest.mark.parametrize("state", ["ready", "delayed", "in_flight", "dead"])
def test_a_message_left_behind_is_found(good, tmp_path, state):
    left = msgspec.structs.replace(NOTHING, **{state: 1})

    assert len(failed(check_run(a_run(tmp_path), good, FILE, left))) == 1


def test_flights_that_were_not_sent_are_found(tmp_path):
    check = check_run(a_run(tmp_path), harvest(worker([1, 2]), worker([3, 4]), sent=3), FILE, NOTHING)

    assert failed(check) == ["flights sent"]


def test_a_line_that_a_killed_process_did_not_finish_is_left_out(tmp_path):
    path = tmp_path / "results.jsonl"
    with RecordFile(path) as file:
        file.append([a_result(1, batch=1), a_result(2, batch=1)])
    with path.open("ab") as torn:
        torn.write(b'[3,"UA",-3')

    assert [result.row for result in read_records(path, Result)] == [1, 2]


def test_a_run_that_is_off_exits_with_1_and_keeps_its_records(demo, flights_csv, monkeypatch):
    def without_the_first(folder):
        found = real(folder)
        found.workers[0].results[:1] = []
        return found

    real = __import__("shardq.demo.job", fromlist=["read_harvest"]).read_harvest
    monkeypatch.setattr("shardq.demo.job.read_harvest", without_the_first)
    result = demo.run("--data", flights_csv, "--messages", 500, "--no-kill", "--workers", 1)

    assert result.exit_code == 1
    assert "✗  flights processed" in result.stdout
    assert "something is off" in result.stdout
    assert any(name.startswith("flights-") for name in demo.left())
