"""Threads that send together, one of which is interrupted while another one stores."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock

PATIENCE = 20  # seconds until something counts as hanging


class _HeldUp(WrappedStore):
    """Appends wait for a gate."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        super().__init__(open_store(url, clock))
        self.entered, self.gate = threading.Event(), threading.Event()

    def append(self, request: Append) -> None:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        super().append(request)


class _Interrupted(threading.Event):
    """An event whose waiting ends as by a signal's handler that raises."""

    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt


def test_a_sender_that_is_interrupted_while_another_one_stores_does_not_block_the_others(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _HeldUp(url, clock)
    client = shardq.Client(store)
    queue = client.create_queue("q")
    producer = queue.producer()
    with ThreadPoolExecutor(2) as threads:
        leader = threads.submit(producer.send, b"first")
        assert store.entered.wait(PATIENCE)
        with monkeypatch.context() as patched:
            patched.setattr("shardq.context.joining.threading.Event", _Interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send(b"interrupted")
        store.gate.set()
        ids = [leader.result(PATIENCE), threads.submit(producer.send, b"next").result(PATIENCE)]
    assert [message.body for identity in ids if (message := queue.get(identity))] == [b"first", b"next"]
    assert queue.counts().ready == 2
    client.close()
