"""The operations of one client, written down before and after they happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import shardq

from .assignment import Assignment
from .dial import Dial, true_monotonic_ns
from .history import Delivery, Event, Log, Phase

__all__ = ["Recorder"]


class Recorder:
    """Writes the history of one client, which does one thing at a time."""

    def __init__(self, assignment: Assignment, dial: Dial, client: shardq.Client) -> None:
        self._name, self._dial, self._client = assignment.name, dial, client
        self._shifts = assignment.store_goes_by_clock
        self._log = Log(Path(assignment.log))
        self._retries = 0
        self.number = 0

    def invoke(self, verb: str, bodies: Sequence[str] = (), *, seconds: float = 0.0, batch: int = 0) -> None:
        self.number += 1
        self._retries = self._client.counters.retries
        self._write(verb, Phase.INVOKE, bodies=tuple(bodies), seconds=seconds, batch=batch)

    def outcome(
        self,
        verb: str,
        phase: Phase,
        bodies: Sequence[str] = (),
        *,
        deliveries: Sequence[Delivery] = (),
        note: object = "",
    ) -> None:
        repeated = self._client.counters.retries > self._retries
        text = f"{type(note).__name__}: {note}"[:200] if isinstance(note, Exception) else str(note)
        self._write(
            verb,
            phase,
            bodies=tuple(bodies),
            deliveries=tuple(deliveries),
            repeated=repeated,
            note=text,
        )

    def settle(
        self, verb: str, bodies: Sequence[str], do: Callable[[], None], *, batch: int, seconds: float = 0
    ) -> None:
        """Ack, release or extend, and write down what became of each message.

        One receive can give a message twice, when its lease ran out meanwhile: it is lost when both are.
        """
        self.invoke(verb, bodies, batch=batch, seconds=seconds)
        lost: Collection[str] = ()
        try:
            do()
        except shardq.LeaseLost as error:
            times = Counter(message.raw.decode().rstrip(" ") for message in error.messages)
            lost = sorted(body for body, count in times.items() if count == bodies.count(body))
            self.outcome(verb, Phase.LOST, lost)
        except shardq.ShardqError as error:
            # Several messages may be of several shards, of which some were reached.
            sure = isinstance(error, shardq.StoreUnavailable) and len(bodies) == 1
            self.outcome(verb, Phase.FAILED if sure else Phase.UNKNOWN, bodies, note=error)
            return
        self.outcome(verb, Phase.OK, [body for body in bodies if body not in lost])

    def _write(self, verb: str, phase: Phase, **more: object) -> None:
        shift = self._dial.ahead if self._shifts else 0
        self._log.write(
            Event(
                at=true_monotonic_ns(),
                shift=shift,
                actor=self._name,
                number=self.number,
                verb=verb,
                phase=phase,
                **more,  # type: ignore[arg-type]
            )
        )
