"""The soak runs, loses nothing, and names what grew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shardq
from tools.bench.stores.report import this_machine
from tools.bench.stores.stage import Place
from tools.soak.crew import Crew, SoakFailed
from tools.soak.page import Soaked, page
from tools.soak.plan import Plan
from tools.soak.record import Record
from tools.soak.sample import Latency, Sample, read
from tools.soak.verdict import judge

ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000


def test_a_short_soak_ends_by_itself_and_writes_its_page(tmp_path: Path) -> None:
    options = ["--store", "sqlite", "--minutes", "0.05", "--rate", "200", "--sample-seconds", "0.5"]
    command = [sys.executable, "-m", "tools.soak", *options, "--output", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)

    folder = tmp_path / "soak" / "sqlite"
    record = Record.decode((folder / "record.json").read_bytes())
    samples = read(folder / "samples.jsonl")
    assert done.returncode == (0 if judge(samples, record).kept else 1), done.stderr
    assert not record.failure and record.sent == record.received > 0
    assert len(samples) == 6 and samples[-1].file_bytes
    assert any(sample.latency for sample in samples)
    assert (tmp_path / "soak.md").read_text() == page({"sqlite": Soaked(record, tuple(samples))})
    assert {path.stem for path in folder.glob("*.png")} >= {"latency", "clients", "files", "backlog", "load"}


def test_a_process_that_fails_is_reported_with_the_reason(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_schema()

    with pytest.raises(SoakFailed, match=r"\w+ \d failed: QueueNotFound"):  # noqa: SIM117
        with Crew(Place(url, "no-such-queue"), Plan(store="sqlite", seconds=9, rate=9, producers=1)) as crew:
            crew.listen(60)


def sample(at: float, **changes: Any) -> Sample:
    fields = {
        "client_bytes": {"consumer 1": 40 * MEGABYTE},
        "server_bytes": None,
        "file_bytes": 20 * MEGABYTE,
        "tombstones": None,
        "backlog": 3,
        "latency": Latency(10, 50, 60, 70),
    } | changes
    return Sample(at=at, sent=int(at * 100), received=int(at * 100), **fields)


def record(*, seconds: float = 600, rate: float = 100, **changes: Any) -> Record:
    plan = Plan(store="sqlite", seconds=seconds, rate=rate)
    fields: Any = {"plan": plan, "sent": 60_000, "received": 60_000, "failure": ""} | changes
    return Record(machine=this_machine(), software="SQLite", seconds=600, **fields)


MOMENTS = range(10, 610, 10)
STEADY = [sample(at) for at in MOMENTS]
SPIKES = {20: 1, 60: 20, 310: 900, 600: 900}  # the beginning, and single ones
GROWING = {at: {"consumer 1": 40 * MEGABYTE + 20_000 * at} for at in MOMENTS}


@pytest.mark.parametrize(
    ("samples", "record", "wrong"),
    [
        (STEADY, record(), ""),
        ([sample(at, file_bytes=SPIKES.get(at, 20) * MEGABYTE) for at in MOMENTS], record(), ""),
        ([sample(at, machine_load=at / 10) for at in MOMENTS], record(), ""),
        ([sample(at, client_bytes=GROWING[at]) for at in MOMENTS], record(), "Grew: memory of consumer 1."),
        (STEADY, record(failure="consumer 1 ended by itself"), "consumer 1 ended by itself"),
        (STEADY, record(received=59_999), "60000 messages were sent and 59999 received"),
        (STEADY, record(rate=110), "100 messages a second were sent"),
        (STEADY, record(seconds=900), "it ended after 600 s of 900 s"),
    ],
    ids=["steady", "spikes", "load of the machine", "growth", "failure", "lost", "too slow", "too short"],
)
def test_what_grew_or_was_lost_is_named_and_nothing_else(
    samples: list[Sample], record: Record, wrong: str
) -> None:
    assert judge(samples, record).kept is (not wrong)
    said = page({"sqlite": Soaked(record, tuple(samples))})
    assert (wrong or "**Nothing grew.**") in said


def test_the_page_is_made_from_the_kept_samples() -> None:
    soaks = {
        file.parent.name: Soaked(
            Record.decode(file.read_bytes()), tuple(read(file.with_name("samples.jsonl")))
        )
        for file in sorted((ROOT / "docs" / "soak").glob("*/record.json"))
    }
    assert (ROOT / "docs" / "soak.md").read_text() == page(soaks)
