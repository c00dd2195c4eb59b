"""A history sorted by message: how each was sent, delivered and settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .history import Delivery, Event, Phase, is_of_side

__all__ = ["Holding", "Life", "Lives", "Operation"]


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
    ahead: list[Operation] = field(
        default_factory=list
    )  # claims before anybody asked that may have been of it

    taken: Event | None = (
        None  # the claim that gave it and counted it, if that may have been before anybody asked
    )

    @property
    def since(self) -> Event:
        """What began its lease."""
        return self.taken or self.asked

    @property
    def claimed(self) -> int:
        """The earliest moment at which it can have been claimed."""
        return min([self.asked.at, *(each.invoked.at for each in self.ahead)])

    @property
    def shifts(self) -> list[int]:
        """How far the store's clock was ahead between its claim and its delivery, as far as is known."""
        events = [event for each in self.ahead for event in (each.invoked, each.outcome) if event]
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

    A message that was claimed ahead, by whomever, counts as claimed since then; where nobody knows what a claim ahead
    got, that is so for all messages of its shard.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.by_body: dict[str, Life] = {}
        self.blind: list[Operation] = []
        self._ahead: dict[str, list[Operation]] = defaultdict(list)  # by message id, or by shard
        operations: dict[tuple[str, int], Operation] = {}
        for event in events:
            if is_of_side(event):
                continue
            key = (event.actor, event.number)
            if event.phase is Phase.INVOKE:
                operations[key] = Operation(event)
            elif event.phase is Phase.LOST:
                operations[key].lost |= set(event.bodies)
            else:
                operations[key].outcome = event
        self._takes: list[Operation] = []
        for operation in operations.values():
            self._add(operation)
        for life in self.by_body.values():
            life.holdings.sort(key=lambda each: each.got.at)
            for each in life.holdings:
                each.ahead = self._claims_of(each)
                each.taken = _taken(each)
        self.blind += self._not_handed_out()

    def life(self, body: str) -> Life:
        return self.by_body.setdefault(body, Life(body))

    def _add(self, operation: Operation) -> None:
        if operation.invoked.verb == "send":
            for body in operation.invoked.bodies:
                self.life(body).sending = operation
        elif operation.invoked.verb in ("receive", "bury"):
            self._add_receive(operation)
        elif operation.invoked.verb in ("claim", "take"):
            self._add_claim(operation)
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
            self._ahead[each].append(operation)
        self._takes += [operation] if operation.invoked.verb == "take" else []

    def _claims_of(self, holding: Holding) -> list[Operation]:
        keys = (holding.delivery.id, holding.delivery.shard)
        found = (each for key in keys if key in self._ahead for each in self._ahead[key])
        return [each for each in found if each.invoked.at < holding.got.at]

    def _not_handed_out(self) -> list[Operation]:
        """The claims that counted deliveries of messages that their client did not hand out."""
        handed_out = {
            (f"{each.got.actor}/ahead", each.taken.number, each.delivery.id)
            for life in self.by_body.values()
            for each in life.holdings
            if each.taken
        }
        return [
            each
            for each in self._takes
            if not _is_sure(each)
            or not all(
                (each.invoked.actor, each.invoked.number, identity) in handed_out
                for identity in (each.outcome.bodies if each.outcome else ())
            )
        ]


def _taken(holding: Holding) -> Event | None:
    """The last claim by the holder itself that surely gave and counted it; or else the first that may have."""
    own = [
        each
        for each in holding.ahead
        if each.invoked.verb == "take" and each.invoked.actor == f"{holding.got.actor}/ahead"
    ]
    sure = [each.invoked for each in own if _is_sure(each)]
    if sure:
        return max(sure, key=lambda event: event.at)
    return min((each.invoked for each in own), key=lambda event: event.at, default=None)


def _is_sure(operation: Operation) -> bool:
    return operation.outcome is not None and operation.outcome.phase in (Phase.OK, Phase.FAILED)
