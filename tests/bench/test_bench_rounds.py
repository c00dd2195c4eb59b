"""The comparison: rounds of all queues, and what becomes of those that are missing or fail."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from shardq.bench.load import Load
from shardq.bench.result import Figure, Sample
from shardq.bench.wording import FIXED_RATE
from tools.bench import load_latency
from tools.bench.database import Database
from tools.bench.field import FIELDS
from tools.bench.group import Group
from tools.bench.latency import run_latencies
from tools.bench.load_latency import FIRST_RATE, KEEPS_UP, keeps_up, run_loads
from tools.bench.peer import SILENCE, look_again
from tools.bench.peers.shardq_sqlite import ShardqSqlite
from tools.bench.rounds import DISK, KINDS, PROCESSOR, Rounds, run_rounds
from tools.bench.singles import SINGLE_KINDS
from tools.bench.starting import Entry, Servers, open_all, start_servers
from tools.bench.usage import Usage

OURS = Group(peers={"shardq_sqlite": "ShardqSqlite"}, store="SQLite")
PLAN = Rounds(rounds=2, messages=40, singles=4, few=4, latency_rounds=2, rate=50.0, seconds=0.2)


class Failing(ShardqSqlite):
    """A queue that loses a message in its second round."""

    name = "one that fails"
    rounds = 0

    def receive(self, count: int, batch: int) -> int:
        self.rounds += 1
        return super().receive(count, batch) - (self.rounds > 2)


def test_the_comparison_runs_in_rounds(tmp_path: Path) -> None:
    with ExitStack() as stack:
        entries, missing = open_all(start_servers([OURS], stack), tmp_path, stack)
        results, failed = run_rounds(entries, PLAN, say=lambda _: None)

    assert not missing and not failed
    rates = [result for result in results if result.name in (*KINDS, *SINGLE_KINDS)]
    assert len(rates) == 10 and all(len(result.rounds) == 2 and result.low > 0 for result in rates)


def test_processor_time_and_files_are_measured(tmp_path: Path) -> None:
    with ExitStack() as stack:
        entries, _ = open_all(start_servers([OURS], stack), tmp_path, stack)
        results, _ = run_rounds(entries, PLAN, say=lambda _: None)

    found = {result.name: result for result in results}
    assert found[PROCESSOR].median > 0 and found[PROCESSOR].figure("others") == 0
    assert len(found[DISK].rounds) == 1 and found[DISK].median > 500  # 512 B a message are 512 MB a million


def test_nothing_is_said_of_the_costs_of_a_server_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(name="given", title="Given", variable="SHARDQ_TEST_GIVEN_URL")
    monkeypatch.setenv(database.variable, "given://")
    with ExitStack() as stack:
        servers = start_servers([Group(peers=OURS.peers, database=database)], stack)
        entries, _ = open_all(servers, tmp_path, stack)
        results, failed = run_rounds(entries, PLAN, say=lambda _: None)

    assert not failed
    assert {result.name for result in results} == {*KINDS, *SINGLE_KINDS}


class Stammering(ShardqSqlite):
    """A queue that delivers messages twice."""

    name = "one that stammers"

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for bodies in super().receiving():
            yield [*bodies, *bodies]


class Alone(ShardqSqlite):
    """What no other process can join."""

    name = "one that is alone"
    wakes = ""


def test_latencies_are_measured_between_processes_that_join_the_queue(tmp_path: Path) -> None:
    with ExitStack() as stack:
        entries = []
        for number, kind in enumerate((ShardqSqlite, Stammering, Alone)):
            folder = tmp_path / str(number)
            folder.mkdir()
            peer = kind()
            peer.open(folder)
            stack.callback(peer.close)
            entries.append(Entry(peer, Usage()))
        (result,), (failed,) = run_latencies(entries, PLAN, say=lambda _: None)
        assert entries[0].peer.receive(0, 1) == 0  # it is joined again

    assert (result.name, result.subject, len(result.rounds)) == (FIXED_RATE, "shardq (SQLite)", 2)
    assert 0 < result.low <= result.figure("p100") < 10_000
    assert failed.startswith("the latency of one that stammers (failed in round 1: ")
    assert failed.endswith("10 of 10 messages came twice)")


def test_a_rising_load_ends_where_a_queue_does_not_keep_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = iter([Sample(1.0, (Figure(KEEPS_UP, 1.0),)), Sample(9.0, (Figure(KEEPS_UP, 0.0),))])
    monkeypatch.setattr(load_latency, "under_load", lambda *_: next(samples))
    with ExitStack() as stack:
        entries, _ = open_all(start_servers([OURS], stack), tmp_path, stack)
        results, failed = run_loads(
            entries, msgspec.structs.replace(PLAN, load_seconds=0.1), say=lambda _: None
        )
        assert entries[0].peer.receive(0, 1) == 0  # it is joined again

    assert not failed and [result.load.rate for result in results] == [FIRST_RATE, 2 * FIRST_RATE]


def test_a_load_comes_from_many_threads_and_is_late_where_a_queue_is_slow(tmp_path: Path) -> None:
    peer = ShardqSqlite()
    peer.open(tmp_path)
    load = Load(rate=200.0, seconds=0.2, threads=4)
    try:
        sample = load_latency.under_load(ShardqSqlite, peer.place, load)
        late = keeps_up([0.0] * 80 + [1.0] * 20, load), keeps_up([1.0] * 80 + [0.0] * 20, load)
    finally:
        peer.close()

    assert [figure.name for figure in sample.figures][-2:] == ["p100", KEEPS_UP]
    assert late == (False, True)


def test_a_queue_that_tells_nobody_is_looked_at_again_until_there_is_something() -> None:
    found = iter([[], [], ["one"], *([[]] * 1000)])
    looks = look_again(lambda: next(found))

    assert next(looks) == ["one"]
    began = time.monotonic()
    assert next(looks) == [] and time.monotonic() - began >= SILENCE


def test_a_missing_module_leaves_out_its_queue_with_the_reason(tmp_path: Path) -> None:
    group = Group(peers={"no_such_queue": "NoSuchQueue"})

    with ExitStack() as stack:
        entries, (missing,) = open_all(start_servers([group], stack), tmp_path, stack)

    assert not entries
    assert missing.startswith("no_such_queue (No module named")


def test_a_server_that_does_not_start_leaves_out_its_queues_with_the_reason() -> None:
    database = Database(name="no_such_server", title="No such server", variable="SHARDQ_TEST_NO_SUCH_URL")

    with ExitStack() as stack:
        servers = start_servers([OURS, Group(peers={"one": "One", "two": "Two"}, database=database)], stack)

    assert [group for group, _ in servers.groups] == [OURS] and servers.stores == {"SQLite": None}
    assert servers.missing[0].startswith("one, two (No such server could not be started: ")
    assert "\n" not in servers.missing[0]


def test_a_queue_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "fails").mkdir()
    failing = Failing()
    with ExitStack() as stack:
        entries, _ = open_all(Servers(((OURS, None),), {}, ()), tmp_path, stack)
        failing.open(tmp_path / "fails")
        stack.callback(failing.close)
        results, failed = run_rounds([Entry(failing, Usage()), *entries], PLAN, say=lambda _: None)

    assert failed == ["one that fails (failed in round 1: 20480 bytes were sent and 20479 received)"]
    assert {result.subject for result in results} == {"shardq (SQLite)"}


def test_the_field_of_all_has_every_queue_of_the_others() -> None:
    everyone = {name for group in FIELDS["all"].groups for name in group.peers}

    assert everyone == {name for field in FIELDS.values() for group in field.groups for name in group.peers}
    assert everyone == {path.stem for path in _modules()}


def _modules() -> list[Path]:
    folder = Path(__file__).parents[2] / "tools" / "bench" / "peers"
    shared = {"__init__", "keuss_queue", "persist_queue", "shardq_queue"}
    return [path for path in folder.glob("*.py") if path.stem not in shared]
