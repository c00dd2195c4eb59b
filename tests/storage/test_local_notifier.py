"""Counting announcements within a process: few queues are remembered, and no announcement is missed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from shardq.base import waits
from shardq.storage import listening
from shardq.storage.listening import Listener, LocalNotifier, Waiter
from shardq.storage.per_process import forks
from tests.interrupted_starts import interrupt_after_start


@pytest.fixture
def notifier(monkeypatch: pytest.MonkeyPatch) -> LocalNotifier:
    monkeypatch.setattr(listening, "_MOST", 3)
    return LocalNotifier()


@pytest.mark.parametrize("others", range(9))
def test_what_is_announced_is_heard_once_whatever_others_were_forgotten(
    notifier: LocalNotifier, others: int
) -> None:
    listener = notifier.listen(lambda: None)
    for _ in range(9):
        notifier.announce(["letters"])
        assert listener.news(["letters"]) == ("letters",)
        assert listener.news(["letters"]) == ()
        for number in range(others):
            notifier.announce([f"other-{number}"])
        assert notifier.remembered <= 3


def test_who_listens_is_woken_once_by_its_queues_only(notifier: LocalNotifier) -> None:
    woken: list[str] = []
    listener = notifier.listen(lambda: woken.append("letters"))
    assert not listener.news(["letters", "parcels"])
    notifier.announce(["telegrams"])
    assert not woken
    for _ in range(2):
        notifier.announce(["parcels"])
        assert woken == ["letters"]


def test_who_rests_is_woken_no_more_and_told_of_what_came_meanwhile(notifier: LocalNotifier) -> None:
    woken: list[str] = []
    listener = notifier.listen(lambda: woken.append("letters"))
    assert not listener.news(["letters"])
    listener.rest()
    notifier.announce(["letters"])
    assert not woken
    assert listener.news(["letters"]) == ("letters",)


def test_where_too_many_were_announced_everybody_is_woken(notifier: LocalNotifier) -> None:
    woken: list[str] = []
    listener = notifier.listen(lambda: woken.append("letters"))
    assert not listener.news(["letters"])
    for number in range(4):
        notifier.announce([f"other-{number}"])
    assert woken
    assert listener.news(["letters"])


def test_a_forked_child_listens_anew(notifier: LocalNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent's listener has a lock that may be held, and hears of nothing."""
    listeners: list[Listener] = []

    class Store:
        def listen(self, wake: Callable[[], None]) -> Listener:
            listeners.append(notifier.listen(wake))
            return listeners[-1]

    waiter = Waiter(Store())
    for _ in range(2):
        waiter.wait(["letters"], 0)
    assert len(listeners) == 1
    monkeypatch.setattr(forks, "count", forks.count + 1)
    for _ in range(2):
        waiter.wait(["letters"], 0)
    assert len(listeners) == 2


def test_a_thread_that_nobody_starts_counts_as_over_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was to start it was interrupted. Until then it is about to be started."""
    at = 0.0
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: at))
    thread = waits.BackgroundThread("test")
    assert thread.prepare(lambda: None) is not None
    assert thread.prepare(lambda: None) is None
    at += 0.5
    assert not thread.has_ended
    at += 1
    assert thread.has_ended and thread.prepare(lambda: None) is not None


def test_a_thread_that_cannot_begin_makes_way_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    thread = waits.BackgroundThread("test")
    first = thread.prepare(lambda: begun.append("first"))
    assert first is not None

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(first, "start", refuse)
    assert not thread.begin(first) and thread.has_ended
    thread.run(lambda: begun.append("second"))
    thread.join()
    assert begun == ["second"]


SENDS_IN_HANDLERS = """
import signal, sys, time
from shardq.storage.listening import LocalNotifier
from shardq.storage.signals import Publisher

class Line:
    name, may_block = "line", False
    def publish(self, queues):
        return True

notifier, publisher = LocalNotifier(), Publisher(Line())
listeners = [notifier.listen(lambda: None) for _ in range(20)]

within = False

def send(*_):
    global within
    if not within:  # a slow machine would come to no end
        within = True
        notifier.announce(["letters"])
        publisher.announce("letters")
        within = False

signal.signal(signal.SIGALRM, send)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
until = time.monotonic() + 2
while time.monotonic() < until:
    for listener in listeners:
        listener.news(["letters"])
        listener.news(["letters"])
    notifier.announce(["letters"])
    publisher.announce("letters")
signal.setitimer(signal.ITIMER_REAL, 0)
publisher.close()
"""


def test_a_handler_of_a_signal_announces_while_its_thread_does() -> None:
    """It waits for no lock of the thread that it interrupts, and disturbs nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", SENDS_IN_HANDLERS], timeout=60, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_thread_that_had_begun_when_an_interrupt_came_is_the_one_that_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, begun = threading.Event(), list[str]()
    thread = waits.BackgroundThread("test")

    def work() -> None:
        goes_on.wait(30)
        begun.append("first")

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_after_start(patched, "test")
        thread.run(work)
    thread.run(lambda: begun.append("second"))
    goes_on.set()
    thread.join()
    assert begun == ["first"]
