"""The audit of large bodies: what a sweep leaves behind the store is named."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import shardq
from shardq.clock import SystemClock
from shardq.large import writing
from shardq.storage.opening import open_store
from tools.faults.defects import DEFECTS
from tools.faults.films import audit_films, create_films, films_queue
from tools.faults.sqlite_target import SqliteTarget


@pytest.mark.parametrize("defect", ["", "KeepsParts"])
def test_parts_that_a_sweep_keeps_are_named(
    tmp_path: Path, defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PART_BYTES", 100)
    target = SqliteTarget(tmp_path)
    target.start()
    try:
        store = open_store(target.url, SystemClock())
        with shardq.Client(DEFECTS[defect](store) if defect else store) as client:
            create_films(client, "q", 5.0)
            queue = client.queue(films_queue("q"))
            for _ in range(2):
                queue.producer().send_stream(io.BytesIO(bytes(3_000)))
            queue.consumer().receive(1)[0].ack()
            queue.purge()
        assert bool(audit_films(target, "q", defect)) is bool(defect)
    finally:
        target.stop()
