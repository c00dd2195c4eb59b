"""Each verdict of the checker, on a history written by hand, with the harmless history beside it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.written_history import Script, delivery
from tools.faults.history import Phase

FAILED, LOST, UNKNOWN, UNANSWERED = Phase.FAILED, Phase.LOST, Phase.UNKNOWN, None
FIRST, SECOND = delivery("first", priority=1, bundle="b2"), delivery("second", priority=5)
TWICE = [delivery(count=3, bundle=each) for each in ("b7", "b8")]


def sent(**how: float) -> Script:
    return Script().send("m", 0, **how)  # type: ignore[arg-type]


def acked() -> Script:
    return sent().get(1).ack("m", 2)


def of_side_queue() -> Script:
    return Script().send("s", 0, verb="supply")


def passed(history: Script, *, late: float = 0.0) -> Script:
    """The second of two messages of a shard is received before the first one."""
    history.send("first", late).send("second", 0)
    return history.receive(SECOND, 2).ack("second", 3).receive(FIRST, 4).ack("first", 5)


def ahead(history: Script) -> Script:
    """The second of two messages was claimed ahead and is received before the first one."""
    return history.receive(SECOND, 3).ack("second", 4).receive(FIRST, 5).ack("first", 6)


def delivered_three_times() -> Script:
    return sent().get(12).get(24, 2).get(36, 3)


def overlapping() -> Script:
    """Two reads of a shard at the same time, of which the later one gives the first message."""
    history = Script().send("first", 0).send("second", 0)
    for seen, at in ((SECOND, 2.0), (FIRST, 2.5)):
        history.receive(seen, at, by=seen.body, took=1).ack(seen.body, 5, by=seen.body)
    return history


CASES: dict[str, tuple[Script, str]] = {
    # lost and found
    "a message that is acked is in order": (acked(), ""),
    "a confirmed message that nobody gets is lost": (sent(), "lost"),
    "a message that nobody sent is unexpected": (Script().get(1).ack("m", 2), "unexpected"),
    "a send that failed stored nothing": (Script().send("absent", 0, phase=FAILED), ""),
    "a send that failed must not have stored": (
        Script().send("m", 0, phase=FAILED).get(1).ack("m", 2),
        "failed but stored",
    ),
    "a delivered message that nobody acked and that is gone is lost": (
        sent().get(1),
        "lost in the middle",
    ),
    "a failed or lost ack does not finish a message": (
        sent().get(1).ack("m", 2, phase=FAILED).ack("m", 3, phase=LOST),
        "lost in the middle",
    ),
    "an ack that was never answered may have finished it": (sent().get(1).ack("m", 2, phase=UNANSWERED), ""),
    "a message under two ids was stored twice": (
        acked().receive(delivery(bundle="b2"), 1.5, by="b").ack("m", 1.6, by="b"),
        "stored twice, held by two",
    ),
    # duplicates
    "a second delivery within the lease means that two hold it": (
        sent().get(1).get(5, 2, by="b").ack("m", 6, by="b"),
        "held by two",
    ),
    "a lease that has ended by the store's clock has ended": (
        sent().get(1).get(5, 2, by="b", shift=300).ack("m", 6, by="b"),
        "",
    ),
    "an extended lease counts from its extension": (
        sent().get(1).ack("m", 8, verb="extend", seconds=20).get(15, 2, by="b").ack("m", 16, by="b"),
        "held by two",
    ),
    "every delivery has a number of its own": (
        sent().get(1).get(12, by="b").ack("m", 13, by="b"),
        "deliveries not counted",
    ),
    "one receive gives a message once": (
        sent().receive([delivery(), delivery(count=2)], 1, took=12).ack("m", 14),
        "twice in a batch",
    ),
    # acks and the fence
    "a receive after an ack has returned does not get the message": (
        acked().get(20, 2, by="b"),
        "acked but redelivered",
    ),
    "an acked message is no dead letter however often its ack was repeated": (
        delivered_three_times().ack("m", 37, repeated=True).get(60, 3, verb="bury"),
        "acked but redelivered",
    ),
    "a receive before the ack had returned may get the message": (
        sent().get(1).get(11, 2, by="b", took=5).ack("m", 12, took=3),
        "",
    ),
    "an ack is not confirmed when another one holds the message": (
        sent().get(1).get(12, 2, by="b").ack("m", 13),
        "acked past the fence",
    ),
    "a late ack that is refused is in order": (
        sent().get(1).get(12, 2, by="b").ack("m", 13, phase=LOST).ack("m", 14, by="b"),
        "",
    ),
    # time
    "a delayed message is not delivered early": (sent(delay=5).get(4).ack("m", 4.5), "delivered early"),
    "a delay goes by the store's clock": (sent(delay=5).get(4, shift=3).ack("m", 4.5), ""),
    "a released message is not delivered before the delay of its release": (
        sent().get(1).ack("m", 2, verb="release", seconds=5).get(3, 2, by="b").ack("m", 4, by="b"),
        "delivered early",
    ),
    # dead letters
    "a dead letter was delivered as often as the queue allows": (
        delivered_three_times().get(60, 3, verb="bury"),
        "",
    ),
    "a message that was delivered less often is no dead letter": (
        sent().get(1).get(60, 3, verb="bury"),
        "dead lettered wrongly",
    ),
    "a delivery that was not counted ahead does not count": (
        sent().get(1).get(15, 2).get(60, 3, verb="bury"),
        "dead lettered wrongly",
    ),
    "a delivery that may have been counted ahead counts": (
        sent().get(1).get(15, 2).get(60, 3, verb="bury").claim_ahead(30, verb="start", phase=UNKNOWN),
        "",
    ),
    "deliveries that nobody saw count where a receive is unknown": (
        sent().get(1).receive((), 15, phase=None).receive((), 30, phase=UNKNOWN).get(60, 3, verb="bury"),
        "",
    ),
    "a message is not delivered more often than the queue allows": (
        sent().get(1, 4).ack("m", 3),
        "delivered too often",
    ),
    "two dead letters of a message are one too many": (
        delivered_three_times().receive(TWICE, 60, verb="bury"),
        "dead lettered twice",
    ),
    # order
    "a waiting message is not passed by one that sorts after it": (passed(Script()), "out of order"),
    "a message that was sent after the other was claimed is not passed": (passed(Script(), late=3.5), ""),
    "reads that overlap have no order": (overlapping(), ""),
    # claimed ahead
    "what was claimed ahead before others were sent may pass them": (
        ahead(Script().send("second", 0).claim_ahead(1, SECOND).send("first", 2)),
        "",
    ),
    "what is claimed ahead must not pass what waits": (
        ahead(Script().send("first", 0).send("second", 0).claim_ahead(1, SECOND)),
        "out of order",
    ),
    "what another one claimed ahead may be passed": (passed(Script().claim_ahead(1, FIRST)), ""),
    "a claim ahead that was not answered is decided for the queue": (
        passed(Script().claim_ahead(1, phase=UNANSWERED)),
        "",
    ),
    "a claim ahead that changed nothing excuses nothing": (
        passed(Script().claim_ahead(1, phase=FAILED)),
        "out of order",
    ),
    "a lease counts from the handing out": (
        sent().claim_ahead(1, delivery()).get(9).get(15, 2, by="b").ack("m", 16, by="b"),
        "held by two",
    ),
    "a lease counts from the claim where that counted the delivery": (
        sent().claim_ahead(1, delivery(), verb="take").get(9).get(15, 2, by="b").ack("m", 16, by="b"),
        "",
    ),
    "a message that was due when it was claimed ahead may come after the clock went back": (
        sent(delay=5).claim_ahead(1, delivery(), shift=5).get(2).ack("m", 3),
        "",
    ),
    "what was claimed before another one's ack may be handed out after it": (
        sent().claim_ahead(1, delivery(), verb="take").get(12, 2, by="b").ack("m", 13, by="b").get(20),
        "",
    ),
    "what was claimed after its ack is redelivered": (
        sent().get(2, by="b").ack("m", 3, by="b").claim_ahead(15, delivery(count=2), verb="take").get(20, 2),
        "acked but redelivered",
    ),
    "a delivery that no claim counted does not count": (
        sent().get(1).claim_ahead(15, delivery(count=2), verb="take").get(60, 3, verb="bury"),
        "dead lettered wrongly",
    ),
    "a delivery that a claim counted and nobody handed out counts": (
        sent()
        .get(1)
        .claim_ahead(15, delivery(count=2), verb="take")
        .claim_ahead(30, delivery(count=3), verb="take")
        .get(60, 3, verb="bury"),
        "",
    ),
    # moved, and never worked on
    "what was sent to the side queue and arrived once is in order": (
        of_side_queue()
        .send("unknown", 0, verb="supply", phase=UNKNOWN)
        .send("never answered", 0, verb="supply", phase=UNANSWERED)
        .receive(delivery("s"), 5, verb="carry")
        .receive(delivery("s", bundle="b7"), 20, verb="arrive")
        .receive(delivery("s", bundle="b7"), 90, verb="arrive"),  # because the first was not answered
        "",
    ),
    "a message that arrived under two ids was moved twice": (
        of_side_queue().receive([delivery("s", bundle=each) for each in ("b7", "b8")], 20, verb="arrive"),
        "moved twice",
    ),
    "a message of the side queue that did not arrive is lost": (
        of_side_queue().receive(delivery("s"), 5, verb="carry"),
        "lost on the move",
    ),
}


@pytest.mark.parametrize(("history", "broken"), CASES.values(), ids=CASES)
def test_a_history_breaks_its_promise_and_no_other(history: Script, broken: str) -> None:
    assert ", ".join(history.broken()) == broken


def test_what_is_left_after_the_drain_is_in_flight_for_ever_or_not_delivered() -> None:
    left = sent().send("n", 0).broken(m="in_flight", n="ready")
    assert left == ["in flight for ever", "not delivered any more"]


@pytest.mark.parametrize(
    ("history", "figures"),
    [
        (acked(), {"sent": 1, "delivered": 1, "acked": 1}),
        (
            Script()
            .send("gone", 0, phase=UNKNOWN)
            .send("never answered", 1, phase=UNANSWERED)
            .send("m", 2, phase=UNKNOWN)
            .get(3)
            .ack("m", 4),
            {"send unknown": 3, "recovered": 1},
        ),
        (sent().get(1).get(11.5, 2, by="b").ack("m", 13, by="b"), {"delivered again: lease over": 1}),
        (
            sent().get(1).ack("m", 2, verb="release").get(3, 2, by="b").ack("m", 4, by="b"),
            {"delivered again: released": 1},
        ),
    ],
    ids=["acked", "unknown sends", "duplicate after a lease", "duplicate after a release"],
)
def test_what_happened_for_a_reason_is_counted_and_breaks_nothing(
    history: Script, figures: dict[str, int]
) -> None:
    verdict = history.judge()
    assert verdict.kept
    assert {name: verdict.figures[name] for name in figures} == figures


@settings(deadline=None)
@given(st.data())
def test_whatever_a_correct_queue_does_is_in_order(data: st.DataObject) -> None:
    """Messages of one shard, delivered in order by one consumer after the other, some again after their lease."""
    script, now = Script(), 1.0
    ranks = sorted(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12)))
    for number, _ in enumerate(ranks):
        script.send(f"m{number}", 0, phase=data.draw(st.sampled_from((Phase.OK, UNKNOWN, UNANSWERED))))
    for number, priority in enumerate(ranks):
        for count in range(1, data.draw(st.integers(1, 3)) + 1):
            seen = delivery(f"m{number}", count, priority=priority, position=number)
            script.receive(seen, now, by=f"c{count}")
            now += 11
        phase = data.draw(st.sampled_from((Phase.OK, UNKNOWN, UNANSWERED)))
        script.ack(f"m{number}", now, by=f"c{count}", phase=phase)
        now += 1
    assert script.broken() == []
