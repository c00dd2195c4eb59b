"""What the queue promises of each message, as functions that find where it did not hold.

Every rule is sound: what it finds cannot have happened in a queue that keeps its promises, however the operations that
overlap are put in order. What an unknown outcome leaves open is always decided for the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from .history import Phase
from .lives import Holding, Life, Lives, Operation

__all__ = ["RULES", "Promise", "cause_of_return"]

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Promise:
    """The settings of the queue under test, and by how much two clocks may differ."""

    lease: float
    max_deliveries: int | None = None
    tolerance: float = 0.1  # seconds
    remains: dict[str, str] = field(default_factory=dict)  # what is still stored at the end, by state


def was_finished(life: Life) -> bool:
    """Somebody acked it, or may have, or it is a dead letter."""
    return bool(life.burials or life.settled("ack", Phase.OK, Phase.UNKNOWN))


def lost(life: Life, promise: Promise, _: Lives) -> bool:
    """Its send was confirmed, and nobody ever got it."""
    gone = not (life.holdings or life.burials) and life.body not in promise.remains
    return gone and _sent(life) is Phase.OK


def lost_in_the_middle(life: Life, promise: Promise, _: Lives) -> bool:
    """It was delivered, nobody can have finished it, and it is not there any more."""
    return bool(life.holdings) and not was_finished(life) and life.body not in promise.remains


def unexpected(life: Life, _: Promise, __: Lives) -> bool:
    """It was delivered, and nobody sent it."""
    return life.sending is None


def failed_but_stored(life: Life, _: Promise, __: Lives) -> bool:
    """Its send was said to have stored nothing."""
    return _sent(life) is Phase.FAILED and bool(life.holdings or life.burials)


def stored_twice(life: Life, _: Promise, __: Lives) -> bool:
    """It has two ids."""
    return len({each.delivery.id for each in life.holdings}) > 1


def dead_lettered_twice(life: Life, _: Promise, __: Lives) -> bool:
    """There are two dead letters of it."""
    return len({each.delivery.id for each in life.burials}) > 1


def acked_but_redelivered(life: Life, _: Promise, __: Lives) -> bool:
    """Somebody who asked after its ack had returned got it, or it became a dead letter."""
    acks = life.settled("ack", Phase.OK)
    if not acks:
        return False
    first = min(ack.ended for ack in acks)
    return bool(life.burials) or any(each.since.at > first for each in life.holdings)


def acked_past_the_fence(life: Life, _: Promise, __: Lives) -> bool:
    """An ack was confirmed although somebody else had the message by then, and nobody else can have acked it."""
    for ack in life.settled("ack", Phase.OK):
        own = next((each for each in life.holdings if _gave(each, ack)), None)
        if own is None or life.burials:
            continue
        others = (each for each in life.settlings_of("ack") if each is not ack)
        if any(each.invoked.at < ack.ended and each.phase(life.body) is not Phase.FAILED for each in others):
            continue
        if any(own.got.at < each.since.at and each.got.at < ack.invoked.at for each in life.holdings):
            return True
    return False


def twice_in_a_batch(life: Life, _: Promise, __: Lives) -> bool:
    """One receive gave it twice."""
    receives = [(each.got.actor, each.got.number) for each in life.holdings]
    return len(set(receives)) < len(receives)


def held_by_two(life: Life, promise: Promise, _: Lives) -> bool:
    """It was delivered again while its lease cannot have been over, and it was not released."""
    return any(
        cause_of_return(life, one, two, promise) == "unexplained" for one, two in pairwise(life.holdings)
    )


def deliveries_not_counted(life: Life, _: Promise, __: Lives) -> bool:
    """Two deliveries have the same number."""
    numbers = [(each.delivery.id, each.delivery.deliveries) for each in life.holdings]
    return len(set(numbers)) < len(numbers)


def delivered_too_often(life: Life, promise: Promise, _: Lives) -> bool:
    """It was delivered once more than the queue allows."""
    limit = promise.max_deliveries
    return limit is not None and any(each.delivery.deliveries > limit for each in life.holdings)


def delivered_early(life: Life, promise: Promise, _: Lives) -> bool:
    """It was there before its due time, or before the delay of its release was over."""
    slack = promise.tolerance * SECOND
    if life.sending and life.holdings:
        due = life.sending.invoked.store_time + life.sending.invoked.seconds * SECOND
        if _latest(life.holdings[0]) < due - slack:
            return True
    return any(_came_early(life, release, slack) for release in life.settled("release", Phase.OK))


def dead_lettered_wrongly(life: Life, promise: Promise, lives: Lives) -> bool:
    """It is a dead letter without that many deliveries, or with more than there can have been."""
    if not life.burials:
        return False
    limit, said = promise.max_deliveries, max(each.delivery.deliveries for each in life.burials)
    if limit is None or said < limit or life.sending is None:
        return True
    return said > len(life.holdings) + lives.unseen(life)


def in_flight_for_ever(life: Life, promise: Promise, _: Lives) -> bool:
    """It is still in flight although nobody is left who holds it."""
    return promise.remains.get(life.body) == "in_flight"


def not_delivered_any_more(life: Life, promise: Promise, _: Lives) -> bool:
    """It is still stored and was not delivered in time."""
    return promise.remains.get(life.body, "in_flight") != "in_flight"


Rule = Callable[[Life, Promise, Lives], bool]

RULES: dict[str, Rule] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        lost,
        lost_in_the_middle,
        unexpected,
        failed_but_stored,
        stored_twice,
        dead_lettered_twice,
        acked_but_redelivered,
        acked_past_the_fence,
        twice_in_a_batch,
        held_by_two,
        deliveries_not_counted,
        delivered_too_often,
        delivered_early,
        dead_lettered_wrongly,
        in_flight_for_ever,
        not_delivered_any_more,
    )
}


def cause_of_return(life: Life, one: Holding, two: Holding, promise: Promise) -> str:
    """Why a message was delivered again: released, lease over, or unexplained."""
    for release in life.settlings_of("release"):
        if release.invoked.at < two.got.at and release.phase(life.body) is not Phase.FAILED:
            return "released"
    began = min(one.since.store_time, two.since.store_time)
    over = began + promise.lease * SECOND
    for extension in life.settled("extend", Phase.OK):
        if _gave(one, extension) and extension.ended < two.asked.at:
            over = max(over, extension.invoked.store_time + extension.invoked.seconds * SECOND)
    late = max(_latest(one), _latest(two))
    return "lease over" if late >= over - promise.tolerance * SECOND else "unexplained"


def _sent(life: Life) -> Phase | None:
    return life.sending.phase(life.body) if life.sending else None


def _gave(holding: Holding, settling: Operation) -> bool:
    event = settling.invoked
    return (event.actor, event.batch) == (holding.got.actor, holding.got.number)


def _latest(holding: Holding) -> int:
    """The latest moment of the store's clock at which it can have been claimed."""
    return holding.got.at + max(holding.shifts)


def _came_early(life: Life, release: Operation, slack: float) -> bool:
    due = release.invoked.store_time + release.invoked.seconds * SECOND
    return any(
        other.since.at > release.ended and _latest(other) < due - slack for other in _after(life, release)
    )


def _after(life: Life, release: Operation) -> Iterator[Holding]:
    """Deliveries that came after the one that was released."""
    own = next((each for each in life.holdings if _gave(each, release)), None)
    if own is not None:
        count = own.delivery.deliveries
        yield from (each for each in life.holdings if each.delivery.deliveries > count)
