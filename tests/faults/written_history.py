"""Histories written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tools.faults.history import Delivery, Event, Phase
from tools.faults.rules import Promise
from tools.faults.verdict import Verdict, judge

PROMISE = Promise(lease=10, max_deliveries=3, tolerance=0.1)


class Script:
    """Operations at given seconds. The store is at seconds + shift by its own clock."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers = itertools.count(1)

    def send(
        self,
        body: str,
        at: float,
        *,
        took: float = 0.1,
        phase: Phase | None = Phase.OK,
        delay: float = 0.0,
        shift: float = 0.0,
        verb: str = "send",
    ) -> None:
        number = next(self._numbers)
        self._event(at, "p", number, verb, Phase.INVOKE, shift, bodies=(body,), seconds=delay)
        if phase:
            self._event(at + took, "p", number, verb, phase, shift, bodies=(body,))

    def receive(
        self,
        deliveries: Sequence[Delivery] | Delivery,
        at: float,
        *,
        actor: str = "a",
        took: float = 0.1,
        shift: float = 0.0,
        verb: str = "receive",
        phase: Phase | None = Phase.OK,
    ) -> int:
        given = (deliveries,) if isinstance(deliveries, Delivery) else tuple(deliveries)
        number = next(self._numbers)
        self._event(at, actor, number, verb, Phase.INVOKE, shift)
        if phase:
            self._event(at + took, actor, number, verb, phase, shift, deliveries=given)
        return number

    def claim_ahead(
        self,
        at: float,
        *bodies: Delivery,
        verb: str = "claim",
        shift: float = 0.0,
        phase: Phase | None = Phase.OK,
    ) -> None:
        """A consumer claims in shard q:0:0 before anybody asks; with the verb ``take`` that counts deliveries."""
        number = next(self._numbers)
        self._event(at, "a/claims", number, verb, Phase.INVOKE, shift, note="q:0:0")
        ids = tuple(each.id for each in bodies) if phase is Phase.OK else ()
        if phase:
            self._event(at + 0.1, "a/claims", number, verb, phase, shift, bodies=ids)

    def settle(
        self,
        verb: str,
        body: str,
        at: float,
        batch: int,
        *,
        actor: str = "a",
        took: float = 0.1,
        phase: Phase | None = Phase.OK,
        seconds: float = 0.0,
        repeated: bool = False,
    ) -> None:
        number = next(self._numbers)
        self._event(at, actor, number, verb, Phase.INVOKE, 0, bodies=(body,), batch=batch, seconds=seconds)
        if phase is Phase.LOST:
            self._event(at + took, actor, number, verb, Phase.LOST, 0, bodies=(body,))
            self._event(at + took, actor, number, verb, Phase.OK, 0)
        elif phase:
            self._event(at + took, actor, number, verb, phase, 0, bodies=(body,), repeated=repeated)

    def judge(self, **remains: str) -> Verdict:
        promise = Promise(PROMISE.lease, PROMISE.max_deliveries, PROMISE.tolerance, remains)
        return judge(sorted(self.events, key=lambda event: event.at), promise)

    def broken(self, **remains: str) -> list[str]:
        return [offence.promise for offence in self.judge(**remains).offences]

    def _event(
        self, at: float, actor: str, number: int, verb: str, phase: Phase, shift: float, **more: object
    ) -> None:
        at_ns, shift_ns = round(at * 1e9), round(shift * 1e9)
        self.events.append(
            Event(at=at_ns, shift=shift_ns, actor=actor, number=number, verb=verb, phase=phase, **more)  # type: ignore[arg-type]
        )


def delivery(
    body: str = "m", count: int = 1, *, bundle: str = "b1", position: int = 0, priority: int = 5, due: int = 0
) -> Delivery:
    return Delivery(body, f"q:0:0:{bundle}:{position}", priority, due, count)
