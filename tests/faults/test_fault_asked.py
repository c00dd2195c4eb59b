"""What the checker says of messages that ask for something: keys, turns in a group, permits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tools.faults.asked import judge_asked
from tools.faults.history import Delivery, Event, Phase

LEASE = 5.0


class Script:
    """Operations at given seconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers = itertools.count(1)

    def ask(
        self, body: str, at: float, *, took: float = 0.1, phase: Phase = Phase.OK, gives: str = ""
    ) -> None:
        """Send a message; its id is its body, unless the send returns another one."""
        self._operation("ask", "q1.1", at, took, phase, bodies=(body,), note=gives or body)

    def answer(
        self, bodies: Sequence[str], at: float, *, actor: str = "n1.1", ids: Sequence[str] = ()
    ) -> None:
        given = tuple(Delivery(body, each, 5, 0, 1) for body, each in zip(bodies, ids or bodies, strict=True))
        self._operation("answer", actor, at, 0.1, Phase.OK, deliveries=given)

    def finish(self, *ids: str, at: float, actor: str = "n1.1") -> None:
        self._operation("finish", actor, at, 0.1, Phase.OK, bodies=ids)

    def block(self, body: str, at: float, *, phase: Phase = Phase.OK) -> None:
        self._operation("block", "n1.1", at, 0.1, phase, bodies=(body,))

    def unblock(self, at: float, *, took: float = 0.1, phase: Phase = Phase.OK) -> None:
        self._operation("unblock", "n2.1", at, took, phase)

    def take(self, actor: str, at: float, *, took: float = 0.1, shift: float = 0.0) -> None:
        self._operation("take-permit", actor, at, took, Phase.OK, note=f"{LEASE:g}", shift=shift)

    def give(self, actor: str, at: float) -> None:
        self._operation("give-permit", actor, at, 0.1, Phase.OK)

    def verdict(self) -> dict[str, int]:
        events = sorted(self.events, key=lambda event: event.at)
        return {each.promise: each.count for each in judge_asked(events, 0.1)}

    def _operation(
        self,
        verb: str,
        actor: str,
        at: float,
        took: float,
        phase: Phase,
        *,
        bodies: tuple[str, ...] = (),
        deliveries: tuple[Delivery, ...] = (),
        note: str = "",
        shift: float = 0.0,
    ) -> None:
        number, ahead = next(self._numbers), int(shift * 1e9)
        self.events += [
            Event(
                at=int(at * 1e9),
                shift=ahead,
                actor=actor,
                number=number,
                verb=verb,
                phase=Phase.INVOKE,
                bodies=bodies,
            ),
            Event(
                at=int((at + took) * 1e9),
                shift=ahead,
                actor=actor,
                number=number,
                verb=verb,
                phase=phase,
                bodies=bodies,
                deliveries=deliveries,
                note=note,
            ),
        ]


@pytest.fixture
def script() -> Script:
    return Script()


def test_what_was_confirmed_and_never_came_is_lost(script: Script) -> None:
    script.ask("d1-q1-1", 0)
    script.ask("d2-q1-2", 1, phase=Phase.UNKNOWN)
    script.ask("u1-q1-3", 2, gives="of another")
    assert script.verdict() == {"asked and lost": 2}
    script.answer(["d1-q1-1", "u1-q2-9"], 3, ids=["d1-q1-1", "of another"])
    assert script.verdict() == {}


def test_a_message_that_may_be_replaced_need_not_come(script: Script) -> None:
    script.ask("u7-q1-7", 0)
    assert script.verdict() == {}


def test_two_messages_of_a_dedupe_key_are_one_too_many(script: Script) -> None:
    script.answer(["d1-q1-1", "d1-q1-1"], 1)
    assert script.verdict() == {}
    script.answer(["d1-q2-1"], 9)
    assert script.verdict() == {"two messages of a dedupe key": 2}


@pytest.mark.parametrize(
    ("finished", "offences"), [(1.0, {}), (3.0, {"two messages of a unique key at a time": 1})]
)
def test_a_message_of_a_unique_key_comes_when_the_one_before_is_finished(
    script: Script, finished: float, offences: dict[str, int]
) -> None:
    script.answer(["u1-q1-1"], 0)
    script.finish("u1-q1-1", at=finished)
    script.answer(["u1-q2-9"], 2, actor="n2.1")
    assert script.verdict() == offences


def test_messages_of_a_group_come_one_after_the_other(script: Script) -> None:
    for number in range(3):
        script.ask(f"gq10-{number}", number)
    script.answer(["gq10-0", "gq10-1"], 4)
    script.finish("gq10-0", at=5)
    script.finish("gq10-1", at=6)
    script.answer(["gq10-2"], 7, actor="n2.1")
    assert script.verdict() == {}


@pytest.mark.parametrize("ids", [["gq10-1"], ["gq10-1", "gq10-0"]], ids=["without it", "before it"])
def test_a_message_of_a_group_that_passes_one_which_nobody_finished_is_out_of_order(
    script: Script, ids: list[str]
) -> None:
    script.ask("gq10-0", 0)
    script.ask("gq10-1", 1)
    script.answer(["gq10-0"], 2)
    script.answer(ids, 3, actor="n2.1")
    assert script.verdict() == {"out of order in its group": 1}


@pytest.fixture
def blocked(script: Script) -> Script:
    """One in which the first of two messages of a group was given up, to the client that had both."""
    for number in range(2):
        script.ask(f"gq10-{number}", number)
    script.answer(["gq10-0", "gq10-1"], 3)
    script.block("gq10-0", 4)
    return script


def test_what_is_received_behind_a_message_that_blocks_is_an_offence(blocked: Script) -> None:
    assert blocked.verdict() == {}
    blocked.answer(["gq11-9", "gq10-1"], 5)
    assert blocked.verdict() == {"received behind a block": 1}


@pytest.mark.parametrize("unanswered", [False, True])
def test_a_redrive_ends_a_block_and_its_message_is_known_by_its_body(
    blocked: Script, unanswered: bool
) -> None:
    blocked.unblock(5, phase=Phase.UNKNOWN if unanswered else Phase.OK)
    blocked.answer(["gq10-0"], 6, ids=["its new id"])
    blocked.finish("its new id", at=7)
    blocked.answer(["gq10-1"], 8, actor="n2.1")
    assert blocked.verdict() == {}


def test_a_block_ends_when_its_message_is_received_again(blocked: Script) -> None:
    blocked.answer(["gq10-0", "gq10-1"], 6, actor="n2.1")
    assert blocked.verdict() == {}


def test_a_redrive_that_was_under_way_may_have_ended_a_block(script: Script) -> None:
    for number in range(2):
        script.ask(f"gq10-{number}", number)
    script.answer(["gq10-0", "gq10-1"], 3)
    script.unblock(3.5, took=2)
    script.block("gq10-0", 4)
    script.answer(["gq10-1"], 5)
    assert script.verdict() == {}


def test_sends_that_overlap_have_no_order(script: Script) -> None:
    script.ask("gq10-0", 0, took=5)
    script.ask("gq10-1", 1)
    script.answer(["gq10-0"], 6)
    script.answer(["gq10-1"], 7, actor="n2.1")
    assert script.verdict() == {}


def test_more_holders_than_permits_are_found(script: Script) -> None:
    for number in (1, 2):
        script.take(f"h{number}.1", number)
    script.give("h1.1", 3)
    script.take("h3.1", 4)
    assert script.verdict() == {}
    script.take("h4.1", 5)
    assert script.verdict() == {"more permits than there are": 1}


def test_a_permit_whose_lease_may_be_over_is_nobodys(script: Script) -> None:
    script.take("h1.1", 1)
    script.take("h2.1", 2, shift=300)
    script.take("h3.1", 3, shift=0)
    script.take("h4.1", -LEASE, took=LEASE + 5)
    assert script.verdict() == {}
