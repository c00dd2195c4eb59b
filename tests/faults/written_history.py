"""Histories written by hand: each step returns its script, so that a history is one expression."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

from tools.faults.history import Delivery, Event, Phase
from tools.faults.rules import Promise
from tools.faults.verdict import Verdict, judge

PROMISE = Promise(lease=10, max_deliveries=3, tolerance=0.1)


class Script:
    """Operations at given seconds. The store is at seconds + shift by its own clock."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers = itertools.count(1)
        self._batches: dict[str, int] = {}

    def operation(
        self,
        verb: str,
        actor: str,
        at: float,
        *,
        took: float = 0.1,
        phase: Phase | None = Phase.OK,
        shift: float = 0.0,
        begins: dict[str, Any] | None = None,
        ends: dict[str, Any] | None = None,
    ) -> int:
        """Write down an operation that took a while, or that was never answered; returns its number."""
        number = next(self._numbers)
        self.event(verb, actor, at, Phase.INVOKE, number=number, shift=shift, **begins or {})
        if phase:
            self.event(verb, actor, at + took, phase, number=number, shift=shift, **ends or {})
        return number

    def event(
        self, verb: str, actor: str, at: float, phase: Phase, *, number: int, shift: float = 0.0, **more: Any
    ) -> None:
        at_ns, shift_ns = round(at * 1e9), round(shift * 1e9)
        self.events.append(
            Event(at=at_ns, shift=shift_ns, actor=actor, number=number, verb=verb, phase=phase, **more)
        )

    def in_order(self) -> list[Event]:
        return sorted(self.events, key=lambda event: event.at)

    def send(
        self, body: str, at: float, *, delay: float = 0.0, verb: str = "send", phase: Phase | None = Phase.OK
    ) -> Self:
        begins = {"bodies": (body,), "seconds": delay}
        self.operation(verb, "p", at, phase=phase, begins=begins, ends={"bodies": (body,)})
        return self

    def receive(
        self,
        deliveries: Sequence[Delivery] | Delivery,
        at: float,
        *,
        by: str = "a",
        took: float = 0.1,
        shift: float = 0.0,
        verb: str = "receive",
        phase: Phase | None = Phase.OK,
    ) -> Self:
        given = (deliveries,) if isinstance(deliveries, Delivery) else tuple(deliveries)
        ends = {"deliveries": given}
        self._batches[by] = self.operation(verb, by, at, took=took, phase=phase, shift=shift, ends=ends)
        return self

    def get(self, at: float, count: int = 1, **how: Any) -> Self:
        """Receive the message ``m`` for the given time."""
        return self.receive(delivery(count=count), at, **how)

    def claim_ahead(
        self,
        at: float,
        *bodies: Delivery,
        verb: str = "claim",
        shift: float = 0.0,
        phase: Phase | None = Phase.OK,
    ) -> Self:
        """Claim in shard q:0:0 before anybody asks; with the verb ``take`` that counts deliveries."""
        ids = tuple(each.id for each in bodies) if phase is Phase.OK else ()
        ends = {"bodies": ids}
        self.operation(verb, "a/claims", at, phase=phase, shift=shift, begins={"note": "q:0:0"}, ends=ends)
        return self

    def ack(
        self,
        body: str,
        at: float,
        *,
        by: str = "a",
        took: float = 0.1,
        phase: Phase | None = Phase.OK,
        seconds: float = 0.0,
        repeated: bool = False,
        verb: str = "ack",
    ) -> Self:
        """Settle what the actor received last."""
        begins = {"bodies": (body,), "batch": self._batches[by], "seconds": seconds}
        ends = {"bodies": (body,), "repeated": repeated}
        number = self.operation(verb, by, at, took=took, phase=phase, begins=begins, ends=ends)
        if phase is Phase.LOST:  # the operation itself was answered
            self.event(verb, by, at + took, Phase.OK, number=number)
        return self

    def judge(self, **remains: str) -> Verdict:
        promise = Promise(PROMISE.lease, PROMISE.max_deliveries, PROMISE.tolerance, remains)
        return judge(self.in_order(), promise)

    def broken(self, **remains: str) -> list[str]:
        return [offence.promise for offence in self.judge(**remains).offences]


def delivery(
    body: str = "m", count: int = 1, *, bundle: str = "b1", position: int = 0, priority: int = 5, due: int = 0
) -> Delivery:
    return Delivery(body, f"q:0:0:{bundle}:{position}", priority, due, count)
