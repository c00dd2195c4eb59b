"""A history sorted by message: how each was sent, delivered and settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .history import CLAIMS, Delivery, Event, Phase, is_of_messages

__all__ = ["Holding", "Life", "Lives", "Operation", "operations_of"]


@dataclass(slots=True)
class Operation:
    """An invocation and its outcome; without one it is unknown for ever."""

    invoked: Event
    outcome: Event | None = None
    lost: frozenset[str] = frozenset()

    def phase(self, body: str) -> Phase:
        """What became of it for one message."""
        if self.outcome is None:
            return Phase.UNKNOWN
        if body in self.lost:
            return Phase.LOST
        done = not self.outcome.bodies or body in self.outcome.bodies
        return self.outcome.phase if done else Phase.UNKNOWN

    @property
    def ended(self) -> float:
        """When it was over, in nanoseconds; never, if nobody knows."""
        return self.outcome.at if self.outcome else float("inf")


@dataclass(slots=True)
class Holding:
    """A message in the hands of a consumer."""

    asked: Event
    got: Event
    delivery: Delivery
    # Those before it that may have been of it, by whomever.
    claims: list[Operation] = field(default_factory=list)
    taken: Event | None = None  # the claim that gave it and counted it, where that was written down

    @property
    def since(self) -> Event:
        """What began its lease."""
        return self.taken or self.asked

    @property
    def claimed(self) -> int:
        """The earliest moment at which it can have been claimed."""
        return min([self.since.at, *(each.invoked.at for each in self.claims)])

    @property
    def shifts(self) -> list[int]:
        """How far the store's clock was ahead between its claim and its delivery, as far as is known."""
        events = [event for each in self.claims for event in (each.invoked, each.outcome) if event]
        return [event.shift for event in (*events, self.asked, self.got)]


@dataclass(slots=True)
class Life:
    """All that is known of a message."""

    body: str
    sending: Operation | None = None
    holdings: list[Holding] = field(default_factory=list)
    burials: list[Holding] = field(default_factory=list)  # as a dead letter
    settlings: list[Operation] = field(default_factory=list)

    def settled(self, verb: str, *phases: Phase) -> list[Operation]:
        return [each for each in self.settlings_of(verb) if each.phase(self.body) in phases]

    def settlings_of(self, verb: str) -> list[Operation]:
        return [each for each in self.settlings if each.invoked.verb == verb]

    def events(self) -> list[Event]:
        """Its history in the order of time."""
        found = [self.sending] if self.sending else []
        pairs = [(each.invoked, each.outcome) for each in (*found, *self.settlings)]
        pairs += [(each.asked, each.got) for each in (*self.holdings, *self.burials)]
        return sorted((event for pair in pairs for event in pair if event), key=lambda event: event.at)


class Lives:
    """The messages of a history, and the operations of which nobody knows what they delivered.

    A message that was claimed before, by whomever, counts as claimed since then; where nobody knows what a claim got
    that counted no delivery, that is so for all messages of its shard.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.by_body: dict[str, Life] = {}
        self.blind: list[Operation] = []
        self._claims: dict[str, list[Operation]] = defaultdict(list)  # by message id, or by shard
        operations: dict[tuple[str, int], Operation] = {}
        for event in events:
            if not is_of_messages(event):
                continue
            key = (event.actor, event.number)
            if event.phase is Phase.INVOKE:
                operations.setdefault(key, Operation(event))
            elif event.phase is Phase.LOST:
                operations[key].lost |= set(event.bodies)
            else:
                operations[key].outcome = event
        self._not_handed_out: dict[str, list[Operation]] = {}  # claims that counted a delivery, by message id
        for operation in operations.values():
            self._add(operation)
        for life in self.by_body.values():
            life.holdings.sort(key=lambda each: each.got.at)
            for each in life.holdings:
                each.claims = self._claims_of(each)
                each.taken = _taken(each)
        self._not_handed_out = self._find_not_handed_out()

    def life(self, body: str) -> Life:
        return self.by_body.setdefault(body, Life(body))

    def _add(self, operation: Operation) -> None:
        if operation.invoked.verb == "send":
            for body in operation.invoked.bodies:
                self.life(body).sending = operation
        elif operation.invoked.verb in ("receive", "bury"):
            self._add_receive(operation)
        elif operation.invoked.verb == "claim":
            self._add_claim(operation)
        elif operation.invoked.verb == "take":
            self._add_take(operation)
        elif operation.invoked.verb == "start":
            self.blind += [] if _is_sure(operation) else [operation]
        else:
            for body in operation.invoked.bodies:
                self.life(body).settlings.append(operation)

    def _add_receive(self, operation: Operation) -> None:
        outcome = operation.outcome
        if outcome is None or outcome.phase is not Phase.OK:
            self.blind.append(operation)
            return
        for delivery in outcome.deliveries:
            life = self.life(delivery.body)
            holdings = life.holdings if outcome.verb == "receive" else life.burials
            holdings.append(Holding(operation.invoked, outcome, delivery))

    def _add_claim(self, operation: Operation) -> None:
        outcome = operation.outcome
        known = outcome.bodies if outcome and _is_sure(operation) else (operation.invoked.note,)
        for each in known:
            self._claims[each].append(operation)

    def _add_take(self, operation: Operation) -> None:
        """What nobody knows it got was delivered once more by it: it is no first delivery afterwards."""
        if not _is_sure(operation):
            self.blind.append(operation)
        for identity in operation.outcome.bodies if operation.outcome else ():
            self._claims[identity].append(operation)

    def _claims_of(self, holding: Holding) -> list[Operation]:
        keys = (holding.delivery.id, holding.delivery.shard)
        found = (each for key in keys if key in self._claims for each in self._claims[key])
        return [each for each in found if each.invoked.at < holding.got.at]

    def unseen(self, life: Life) -> int:
        """How many deliveries of a message may have been counted since it was sent, without a holder."""
        since = life.sending.invoked.at if life.sending else 0
        ids = {each.delivery.id for each in life.holdings} or set(self._not_handed_out)
        own = [each for identity in ids for each in self._not_handed_out.get(identity, ())]
        return sum(each.ended > since for each in (*self.blind, *own))

    def _find_not_handed_out(self) -> dict[str, list[Operation]]:
        handed_out = {
            (each.taken.actor, each.taken.number, each.delivery.id)
            for life in self.by_body.values()
            for each in life.holdings
            if each.taken
        }
        found: dict[str, list[Operation]] = defaultdict(list)
        for identity, claims in self._claims.items():
            for each in claims:
                event = each.invoked
                if event.verb == "take" and (event.actor, event.number, identity) not in handed_out:
                    found[identity].append(each)
        return found


def operations_of(events: Sequence[Event], verb: str) -> list[Operation]:
    """The operations of a verb, for queues whose messages have no lives here."""
    found: dict[tuple[str, int], Operation] = {}
    for event in events:
        if event.verb == verb and event.phase is Phase.INVOKE:
            found[event.actor, event.number] = Operation(event)
        elif event.verb == verb:
            found[event.actor, event.number].outcome = event
    return list(found.values())


def _taken(holding: Holding) -> Event | None:
    """The last claim by the holder itself that gave and counted it."""
    claimer = holding.got.actor + CLAIMS
    own = [each.invoked for each in holding.claims if each.invoked.verb == "take"]
    return max((each for each in own if each.actor == claimer), key=lambda event: event.at, default=None)


def _is_sure(operation: Operation) -> bool:
    return operation.outcome is not None and operation.outcome.phase in (Phase.OK, Phase.FAILED)
