"""What the checker says of messages that ask for something: keys, turns in a group, permits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pytest

from tests.faults.written_history import Script
from tools.faults.asked import judge_asked
from tools.faults.history import Delivery, Phase

LEASE = 5.0


class Asking(Script):
    def ask(self, body: str, at: float, *, gives: str = "", **how: Any) -> Self:
        """Send a message; its id is its body, unless the send returns another one."""
        ends = {"bodies": (body,), "note": gives or body}
        self.operation("ask", "q1.1", at, begins={"bodies": (body,)}, ends=ends, **how)
        return self

    def answer(self, bodies: str, at: float, *, by: str = "n1.1", ids: str = "") -> Self:
        pairs = zip(bodies.split(), (ids or bodies).split(), strict=True)
        given = tuple(Delivery(body, each, 5, 0, 1) for body, each in pairs)
        self.operation("answer", by, at, ends={"deliveries": given})
        return self

    def does(self, verb: str, at: float, *bodies: str, by: str = "n1.1", **how: Any) -> Self:
        self.operation(verb, by, at, begins={"bodies": bodies}, ends={"bodies": bodies}, **how)
        return self

    def take(self, holder: str, at: float, **how: Any) -> Self:
        self.operation("take-permit", holder, at, ends={"note": f"{LEASE:g}"}, **how)
        return self


def script() -> Asking:
    return Asking()


def both_asked() -> Asking:
    return script().ask("gq10-0", 0).ask("gq10-1", 1)


def blocked() -> Asking:
    """The first of two messages of a group was given up, to the client that had both."""
    return both_asked().answer("gq10-0 gq10-1", 3).does("block", 4, "gq10-0")


def redriven(phase: Phase) -> Asking:
    """The message that blocked is known by its body, whether the redrive was answered or not."""
    history = blocked().does("unblock", 5, by="n2.1", phase=phase).answer("gq10-0", 6, ids="new")
    return history.does("finish", 7, "new").answer("gq10-1", 8, by="n2.1")


def one_key(finished: float) -> Asking:
    history = script().answer("u1-q1-1", 0).does("finish", finished, "u1-q1-1")
    return history.answer("u1-q2-9", 2, by="n2.1")


def permits(*holders: str) -> Asking:
    """The first holder gave its permit back before the third one took one."""
    history = script().does("give-permit", 3, by=holders[0])
    for at, holder in zip((1, 2, 4, 5), holders, strict=False):
        history.take(holder, at)
    return history


def of_keys() -> Asking:
    """A message of no key, one whose send is unknown, and one that is another one's by its unique key."""
    history = script().ask("d1-q1-1", 0).ask("d2-q1-2", 1, phase=Phase.UNKNOWN)
    return history.ask("u1-q1-3", 2, gives="other")


CASES: dict[str, tuple[Asking, str]] = {
    "what was confirmed and never came is lost": (of_keys(), "asked and lost 2"),
    "what was confirmed came under its id": (
        of_keys().answer("d1-q1-1 u1-q2-9", 3, ids="d1-q1-1 other"),
        "",
    ),
    "a message that may be replaced need not come": (script().ask("u7-q1-7", 0), ""),
    "one message of a dedupe key may come again": (script().answer("d1-q1-1 d1-q1-1", 1), ""),
    "two messages of a dedupe key are one too many": (
        script().answer("d1-q1-1 d1-q1-1", 1).answer("d1-q2-1", 9),
        "two messages of a dedupe key 2",
    ),
    "a unique key is free once its message is finished": (one_key(1), ""),
    "a unique key is not free before": (one_key(3), "two messages of a unique key at a time 1"),
    "messages of a group come one after the other": (
        both_asked()
        .ask("gq10-2", 2)
        .answer("gq10-0 gq10-1", 4)
        .does("finish", 5, "gq10-0")
        .does("finish", 6, "gq10-1")
        .answer("gq10-2", 7, by="n2.1"),
        "",
    ),
    "a message that passes an unfinished one of its group without it": (
        both_asked().answer("gq10-0", 2).answer("gq10-1", 3, by="n2.1"),
        "out of order in its group 1",
    ),
    "a message that comes before an unfinished one of its group": (
        both_asked().answer("gq10-0", 2).answer("gq10-1 gq10-0", 3, by="n2.1"),
        "out of order in its group 1",
    ),
    "a block alone breaks nothing": (blocked(), ""),
    "what is received behind a message that blocks": (
        blocked().answer("gq11-9 gq10-1", 5),
        "received behind a block 1",
    ),
    "a redrive ends a block": (redriven(Phase.OK), ""),
    "a redrive that was not answered may have ended a block": (redriven(Phase.UNKNOWN), ""),
    "a block ends when its message is received again": (blocked().answer("gq10-0 gq10-1", 6, by="n2.1"), ""),
    "a redrive that was under way may have ended a block": (
        blocked().does("unblock", 3.5, by="n2.1", took=2).answer("gq10-1", 5),
        "",
    ),
    "sends that overlap have no order": (
        script().ask("gq10-0", 0, took=5).ask("gq10-1", 1).answer("gq10-0", 6).answer("gq10-1", 7, by="n2.1"),
        "",
    ),
    "as many holders as there are permits": (permits("h1.1", "h2.1", "h3.1"), ""),
    "more holders than permits": (permits("h1.1", "h2.1", "h3.1", "h4.1"), "more permits than there are 1"),
    "a permit whose lease may have ended is nobody's": (
        script()
        .take("h1.1", 1)
        .take("h2.1", 2, shift=300)
        .take("h3.1", 3)
        .take("h4.1", -LEASE, took=LEASE + 5),
        "",
    ),
}


@pytest.mark.parametrize(("history", "broken"), CASES.values(), ids=CASES)
def test_what_was_asked_for_is_kept_or_named(history: Asking, broken: str) -> None:
    found: Sequence[str] = [f"{each.promise} {each.count}" for each in judge_asked(history.in_order(), 0.1)]
    assert ", ".join(found) == broken
