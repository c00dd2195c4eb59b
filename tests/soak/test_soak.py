"""The soak: it runs, it ends by itself, and it tells what grew."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import shardq
from shardq.bench.report import this_machine
from shardq.bench.stage import Place
from tools.soak.crew import Crew, SoakFailed
from tools.soak.page import Soaked, page
from tools.soak.plan import Plan
from tools.soak.record import Record
from tools.soak.sample import Latency, Sample, read
from tools.soak.verdict import judge

ROOT = Path(__file__).parents[2]
PLAN = Plan(store="sqlite", seconds=600, rate=100)
MEGABYTE = 1_000_000


def test_a_short_soak_ends_by_itself_and_writes_its_page(tmp_path: Path) -> None:
    options = ["--store", "sqlite", "--minutes", "0.1", "--rate", "200", "--sample-seconds", "0.5"]
    command = [sys.executable, "-m", "tools.soak", *options, "--output", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    folder = tmp_path / "soak" / "sqlite"
    record = Record.decode((folder / "record.json").read_bytes())
    samples = read(folder / "samples.jsonl")
    assert done.returncode == (0 if judge(samples, record).kept else 1), done.stderr
    assert not record.failure and record.sent == record.received > 0
    assert len(samples) == 12
    assert all(sample.client_bytes.keys() == samples[0].client_bytes.keys() for sample in samples)
    assert samples[-1].file_bytes and samples[-1].server_bytes is None
    assert any(sample.latency for sample in samples)
    assert (tmp_path / "soak.md").read_text() == page({"sqlite": Soaked(record, tuple(samples))})
    assert all(
        (folder / f"{name}.png").exists() for name in ("latency", "clients", "files", "backlog", "load")
    )


def test_a_soak_that_is_broken_off_ends_its_processes_and_keeps_what_it_has_seen(tmp_path: Path) -> None:
    options = ["--store", "sqlite", "--minutes", "60", "--rate", "50", "--sample-seconds", "0.5"]
    command = [sys.executable, "-m", "tools.soak", *options, "--output", str(tmp_path)]
    folder = tmp_path / "soak" / "sqlite"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as soak:
        while not (folder / "samples.jsonl").exists():
            assert soak.poll() is None
            time.sleep(0.1)
        processes = psutil.Process(soak.pid).children(recursive=True)
        soak.terminate()
        soak.communicate(timeout=60)

    assert soak.returncode == 1
    assert processes and not psutil.wait_procs(processes, timeout=10)[1]
    assert Record.decode((folder / "record.json").read_bytes()).failure == "it was broken off"
    assert "it was broken off" in (tmp_path / "soak.md").read_text()


def test_a_process_that_fails_is_told_with_the_reason(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_schema()

    with pytest.raises(SoakFailed, match=r"\w+ \d failed: QueueNotFound"):  # noqa: SIM117
        with Crew(Place(url, "no-such-queue"), Plan(store="sqlite", seconds=9, rate=9, producers=1)) as crew:
            crew.listen(60)


def test_nothing_grew_where_nothing_grew() -> None:
    verdict = judge(_samples(), _record())

    assert verdict.kept and {finding.growth for finding in verdict.findings} == {0}
    assert "**Nothing grew.**" in _page(_samples(), _record())


def test_what_grows_is_named() -> None:
    growing = [
        _sample(at, client_bytes={"consumer 1": 40 * MEGABYTE + 20_000 * at}) for at in range(10, 610, 10)
    ]

    (finding,) = [each for each in judge(growing, _record()).findings if not each.kept]

    assert finding.name == "memory of consumer 1"
    assert finding.growth == pytest.approx(8, rel=0.01)  # 400 s of 20 kB
    assert "**Grew: memory of consumer 1.**" in _page(growing, _record())


def test_the_load_of_the_machine_is_shown_and_not_judged() -> None:
    samples = [_sample(at, machine_load=at / 10) for at in range(10, 610, 10)]

    assert judge(samples, _record()).kept
    assert "| load of the machine | 40 | +40 | - | - |" in _page(samples, _record())


def test_the_beginning_and_single_spikes_do_not_count() -> None:
    samples = _samples()
    for place, size in ((0, 1), (5, 20), (30, 900), (59, 900)):
        samples[place] = _sample(samples[place].at, file_bytes=size * MEGABYTE)

    assert judge(samples, _record()).kept


@pytest.mark.parametrize(
    ("record", "trouble"),
    [
        ({"failure": "consumer 1 ended by itself"}, "consumer 1 ended by itself"),
        ({"received": 59_999}, "60000 messages were sent and 59999 received"),
        ({"plan": Plan(store="sqlite", seconds=600, rate=110)}, "100 messages a second were sent"),
        ({"plan": Plan(store="sqlite", seconds=900, rate=100)}, "it ended after 600 s of 900 s"),
    ],
)
def test_what_went_wrong_is_told(record: dict, trouble: str) -> None:
    verdict = judge(_samples(), _record(**record))

    assert not verdict.kept and trouble in "".join(verdict.troubles)
    assert trouble in _page(_samples(), _record(**record))


def test_the_page_is_made_from_the_kept_samples() -> None:
    kept = {file.parent.name: file.parent for file in sorted((ROOT / "docs" / "soak").glob("*/record.json"))}
    soaks = {
        store: Soaked(
            Record.decode((folder / "record.json").read_bytes()), tuple(read(folder / "samples.jsonl"))
        )
        for store, folder in kept.items()
    }

    assert (ROOT / "docs" / "soak.md").exists() is bool(soaks)
    if soaks:
        assert (ROOT / "docs" / "soak.md").read_text() == page(soaks)


def _page(samples: list[Sample], record: Record) -> str:
    return page({"sqlite": Soaked(record, tuple(samples))})


def _record(**changes) -> Record:
    fields: Any = {"plan": PLAN, "sent": 60_000, "received": 60_000, "failure": ""} | changes
    return Record(machine=this_machine(), software="SQLite", seconds=600, **fields)


def _samples() -> list[Sample]:
    return [_sample(at) for at in range(10, 610, 10)]


def _sample(at: float, **changes) -> Sample:
    fields = {
        "client_bytes": {"consumer 1": 40 * MEGABYTE},
        "server_bytes": None,
        "file_bytes": 20 * MEGABYTE,
        "tombstones": None,
        "backlog": 3,
        "latency": Latency(10, 50, 60, 70),
    } | changes
    return Sample(at=at, sent=int(at * 100), received=int(at * 100), **fields)
