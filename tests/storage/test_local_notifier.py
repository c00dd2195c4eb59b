"""Counting announcements within a process: few queues are remembered, and no announcement is missed."""

from __future__ import annotations

import pytest

from shardq.storage.signals import publisher
from shardq.storage.signals.publisher import LocalNotifier


@pytest.fixture
def notifier(monkeypatch: pytest.MonkeyPatch) -> LocalNotifier:
    monkeypatch.setattr(publisher, "_MOST", 3)
    return LocalNotifier()


@pytest.mark.parametrize("others", range(9))
def test_what_is_announced_is_heard_once_whatever_others_were_forgotten(
    notifier: LocalNotifier, others: int
) -> None:
    for _ in range(9):
        notifier.announce(["letters"])
        assert notifier.wait(["letters"], 0) == ("letters",)
        assert notifier.wait(["letters"], 0) == ()
        notifier.announce(f"other-{number}" for number in range(others))
        assert notifier.remembered() <= 3


def test_who_waited_for_many_queues_remembers_few(notifier: LocalNotifier) -> None:
    for number in range(20):
        notifier.announce([f"letters-{number}"])
        assert notifier.wait([f"letters-{number}"], 0)
        assert not notifier.wait([f"letters-{number}"], 0)
        assert notifier.remembered() <= 3
