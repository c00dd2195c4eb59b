"""The check of restored queues finds each broken promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.ledger import Ledger

from tests.backups.under_load import ENOUGH, Moments, broken

BACKUP = Moments(started=100, ended=200)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What was done to enough messages of each kind: sent or acked before, during and after a backup."""
    events = []
    for number in range(ENOUGH):
        events += [
            f"1 sending kept{number} acked{number} during{number} changing{number}",
            f"2 sent kept{number} acked{number} during{number} changing{number}",
            f"3 acking acked{number}",
            f"4 acked acked{number}",
            f"150 acking during{number}",
            f"160 acked during{number}",
            f"210 acking changing{number}",
            f"220 acked changing{number}",
            f"250 sending after{number}",
            f"260 sent after{number}",
        ]
    log = tmp_path / "log"
    log.write_text("".join(f"{event}\n" for event in events))
    return Ledger([log])


def whole() -> dict[str, int]:
    return {f"{kind}{number}": 1 for kind in ("kept", "changing") for number in range(ENOUGH)}


def test_a_backup_may_have_what_was_acked_while_it_was_made(ledger: Ledger) -> None:
    assert not broken(ledger, BACKUP, whole())
    assert not broken(ledger, BACKUP, whole() | {"during7": 1})


@pytest.mark.parametrize(
    ("restored", "promise"),
    [
        ({"kept3": 0}, "lost"),
        ({"changing3": 0}, "lost"),
        ({"acked3": 1}, "acked before and there"),
        ({"after3": 1}, "sent later and there"),
        ({"strange": 1}, "never sent"),
        ({"kept3": 2}, "twice"),
    ],
)
def test_each_broken_promise_is_named(ledger: Ledger, restored: dict[str, int], promise: str) -> None:
    found = {body: count for body, count in (whole() | restored).items() if count}
    assert broken(ledger, BACKUP, found) == {promise: list(restored)}


def test_a_load_that_says_nothing_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1 sending a\n2 sent a\n")
    with pytest.raises(AssertionError, match="too small"):
        broken(Ledger([tmp_path / "log"]), BACKUP, {"a": 1})
