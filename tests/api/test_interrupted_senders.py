"""A thread that is interrupted, at any moment of a call, blocks no other thread of its client."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import shardq
from shardq.base.waits import ThreadWait
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import joined_callers

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


class _Interrupted(ThreadWait):
    """A turn whose waiting ends as by a signal's handler that raises."""

    def wait(self, seconds: float = -1) -> None:
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
            patched.setattr("shardq.core.context.group_commit.ThreadWait", _Interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send(b"interrupted")
        store.gate.set()
        ids = [leader.result(PATIENCE), threads.submit(producer.send, b"next").result(PATIENCE)]
    assert [message.body for identity in ids if (message := queue.get(identity))] == [b"first", b"next"]
    assert queue.counts().ready == 2
    client.close()


class _Interrupting(shardq.Hooks):
    """The hook of that name ends as by Ctrl-C when it is told of one body."""

    def __init__(self, name: str) -> None:
        setattr(self, name, self._interrupt)

    def _interrupt(self, queue: str, messages: Sequence[shardq.OutgoingMessage], ids: object = None) -> None:
        if any(message.body == b"interrupted" for message in messages):
            raise KeyboardInterrupt


@pytest.mark.parametrize("hook", ["before_send", "after_send"])
def test_a_sender_whose_leader_is_interrupted_is_told_what_to_send_again(
    url: str, clock: ManualClock, hook: str
) -> None:
    store = _HeldUp(url, clock)
    client = shardq.Client(store, hooks=_Interrupting(hook))
    queue = client.create_queue("q")
    producer = queue.producer()
    with ThreadPoolExecutor(3) as threads:
        sends = [threads.submit(producer.send, b"first")]
        assert store.entered.wait(PATIENCE)
        for count, body in enumerate((b"interrupted", b"led"), 1):
            sends.append(threads.submit(producer.send, body))
            _wait_for_senders(producer, count)
        store.gate.set()
        led = sends[2].exception(PATIENCE)
    assert isinstance(sends[1].exception(), KeyboardInterrupt)
    assert isinstance(led, shardq.OutcomeUnknown)
    producer.send(led.unsent[0])
    interrupted = [b"interrupted"] if hook == "after_send" else []
    assert sorted(message.body for message in queue.peek(10)) == [b"first", *interrupted, b"led"]
    client.close()


def _wait_for_senders(producer: shardq.Producer, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while joined_callers(producer) < count:
        assert time.monotonic() < until
        time.sleep(0.001)


_SWALLOWING = (
    "_at_fork_reinit",
    "__del__",
)  # beside callbacks of weak references, whose errors Python only prints


class _InterruptAt:
    """Ends a call at one of the moments at which a signal's handler may run: entering a function, or back from C."""

    def __init__(self, moment: int) -> None:
        self._left = moment

    def __call__(self, call: Callable[[], object]) -> bool:
        """True when the call has so many moments."""
        gc.disable()  # the callbacks of a collection swallow what is raised in them
        sys.setprofile(self._seen)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
            gc.enable()
        return self._left <= 0

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        swallowed = frame.f_code.co_name in _SWALLOWING or frame.f_code.co_filename == weakref.__file__
        if event in ("call", "c_return") and not swallowed:
            self._left -= 1
            if not self._left:
                sys.setprofile(None)
                raise KeyboardInterrupt


class _Calls:
    """What several threads of a client do."""

    def __init__(self, client: shardq.Client) -> None:
        self._queue = client.create_queue("q", shards=1, time_shards=1, visibility_timeout=600)
        self._producer, self._consumer = self._queue.producer(), self._queue.consumer()
        self._producer.send_many([b""] * 2_000)
        self._held = list(self._consumer.receive(2_000))

    def send(self) -> None:
        self._producer.send(b"")

    def ack(self) -> None:
        self._held.pop().ack()

    def extend(self) -> None:
        self._held.pop().extend(600)

    def counts(self) -> None:
        self._queue.counts()


@pytest.mark.parametrize("name", ["send", "ack", "extend", "counts"])
def test_a_thread_that_is_interrupted_at_any_moment_of_a_call_blocks_no_other_one(
    url: str, clock: ManualClock, name: str
) -> None:
    with shardq.connect(url, clock=clock) as client, ThreadPoolExecutor(2) as threads:
        call = getattr(_Calls(client), name)
        call()
        moment = 1
        while threads.submit(_InterruptAt(moment), call).result(PATIENCE):
            threads.submit(call).result(PATIENCE)
            moment += 1
        assert moment > 20
