"""Messages after a cut: where each may be, and how much of what clients were told has to be lost for it."""

from __future__ import annotations

import pytest

from tools.power_loss.checking import Offence, misplaced
from tools.power_loss.marks import Ledger

CUT = 100


def offences(*lines: tuple[int, bytes], here: str = "", dead: str = "", moves: bool = True) -> list[Offence]:
    ledger = Ledger()
    for at, line in lines:
        ledger.read(line, at)
    return list(misplaced(ledger, CUT, set(here), set(dead), moves_at_once=moves))


SENT = [(10, b"sending a"), (20, b"sent a")]
ACKED = [*SENT, (30, b"acking a"), (40, b"acked a")]
DEAD = [*SENT, (30, b"dying a"), (40, b"dead a")]


@pytest.mark.parametrize(
    ("lines", "here", "dead"),
    [
        (SENT[:1], "a", ""),
        (SENT[:1], "", ""),
        (SENT, "a", ""),
        (ACKED[:3], "a", ""),
        (ACKED[:3], "", ""),
        (ACKED, "", ""),
        (DEAD[:3], "a", ""),
        (DEAD[:3], "", "a"),
        (DEAD, "", "a"),
    ],
)
def test_what_was_told_last_says_where_a_message_may_be(
    lines: list[tuple[int, bytes]], here: str, dead: str
) -> None:
    assert offences(*lines, here=here, dead=dead) == []


@pytest.mark.parametrize(
    ("lines", "here", "dead", "undone"),
    [
        (SENT, "", "", CUT - 20),
        (ACKED, "a", "", CUT - 40),
        (DEAD, "a", "", CUT - 40),
        (DEAD, "", "", CUT - 20),
        (ACKED[:3], "", "a", None),
        (DEAD, "a", "a", None),
    ],
)
def test_what_is_elsewhere_is_told_with_what_has_to_be_undone_for_it(
    lines: list[tuple[int, bytes]], here: str, dead: str, undone: int | None
) -> None:
    assert [each.undone for each in offences(*lines, here=here, dead=dead)] == [undone]


def test_a_cut_within_a_move_of_two_steps_may_leave_both() -> None:
    assert offences(*DEAD[:3], here="a", dead="a", moves=False) == []
    assert len(offences(*DEAD[:3], here="a", dead="a")) == 1
    assert len(offences(*ACKED, here="a", dead="a", moves=False)) == 1
