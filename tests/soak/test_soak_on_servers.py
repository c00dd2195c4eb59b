"""The soak on a server of its own: what is seen of it, and that it is gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tools.bench.peer import PeerMissing
from tools.soak import soak as soaking
from tools.soak.plan import Plan
from tools.soak.sample import Sample, read
from tools.soak.site import STORES, Site, open_site
from tools.soak.soak import SAMPLES, soak


@pytest.mark.server
def test_memory_files_and_tombstones_of_cassandra_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = _soaked("cassandra", tmp_path, monkeypatch)

    assert last.tombstones is not None and last.tombstones >= 0


@pytest.mark.server
def test_memory_and_files_of_mongodb_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _soaked("mongodb", tmp_path, monkeypatch).tombstones is None


def _soaked(store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """The last sample of a short soak on a server that is started for it."""
    monkeypatch.delenv(STORES[store].variable, raising=False)
    processes: list[int] = []

    @contextmanager
    def watched(store: str) -> Iterator[Site]:
        with open_site(store) as site:
            processes.extend(site.usage.processes)
            yield site

    monkeypatch.setattr(soaking, "open_site", watched)
    plan = Plan(store=store, seconds=8, rate=100, sample_seconds=2)
    try:
        record = soak(plan, folder, lambda _: None)
    except PeerMissing as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    last = read(folder / SAMPLES)[-1]
    assert not record.failure and record.sent == record.received > 0
    assert last.server_bytes and last.file_bytes
    assert processes and not any(_runs(pid) for pid in processes)
    return last


def _runs(pid: int) -> bool:
    """True unless it has ended; where nobody waits for orphans, its number stays taken."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
