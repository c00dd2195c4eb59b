"""Ack, release and extend: what a consumer says of the messages that it holds, and finding out what it lost.

Each acts on all that is still the caller's and raises LeaseLost for the rest. A shard that fails costs the others
nothing: the error comes at the end, and what was done is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardq.clock import microseconds
from shardq.codec import Codec
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer
from shardq.errors import LeaseLost
from shardq.held import Fate, Pick
from shardq.message import Message
from shardq.sending.outgoing import check_delay
from shardq.settings import check_number
from shardq.settling.moves import DeadLetters, Move, SameShard, ToQueue
from shardq.settling.picks import by_shard, spans_of
from shardq.settling.settling import Call, Settling
from shardq.settling.verbs import ACK, DEAD_LETTER, EXTEND, FORWARD, KEEP, RELEASE, REPLACE, START, Verb
from shardq.sharding.shard import Shard
from shardq.storage.requests import Acknowledge, Extend, Fenced, Release

__all__ = ["MAX_LEASE_SECONDS", "Settlement"]

MAX_LEASE_SECONDS = 7 * 86_400.0

_WHY_LOST = {
    Fate.FINISHED: "acked or moved before by this consumer",
    Fate.RELEASED: "released before by this consumer",
    Fate.LOST: "lease over, and delivered again: extend leases, or raise the visibility timeout",
}


class Settlement:
    """Settles held messages of one queue for one consumer; tells it which shards have messages again."""

    def __init__(
        self,
        context: QueueContext,
        codec: Codec,
        released: Callable[[Shard], None] = lambda _: None,
        *,
        by_receipt: bool = False,
    ) -> None:
        self._context, self._codec, self._released, self._by_receipt = context, codec, released, by_receipt
        self._failing: frozenset[Shard] = frozenset()

    def ack(self, picks: Sequence[Pick]) -> None:
        """Finish messages."""
        keep = self._context.settings.history_retention > 0
        hooks, name = self._context.hooks, self._context.name
        if hooks is not None and (messages := self._seen(picks)):
            hooks.before_ack(name, messages)

        def acknowledge(shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
            request = Acknowledge(shard, spans_of(group), keep)
            return self._context.retry.ask(self._context.store.acknowledge, request)

        settling = self._settle(picks, acknowledge, ACK)
        if hooks is not None and (messages := self._seen(settling.done)):
            hooks.after_ack(name, messages)
        self._raise_if_any(settling, ACK)

    def release(self, picks: Sequence[Pick], delay: float, *, started: bool = True) -> None:
        """Give messages back, deliverable again after so many seconds."""
        microseconds_of_delay = check_delay(delay)

        def release(shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
            request = Release(shard, spans_of(group), microseconds_of_delay, started)
            return self._context.retry.ask(self._context.store.release, request)

        settling = self._settle(picks, release, RELEASE)
        for shard in by_shard(settling.done):
            self._released(shard)
        self._raise_if_any(settling, RELEASE)

    def extend(self, picks: Sequence[Pick], seconds: float) -> None:
        """Hold messages for so many seconds from now on."""
        check_number("seconds", seconds, 0.0, MAX_LEASE_SECONDS)
        self._extend(picks, microseconds(seconds), EXTEND)

    def keep(self, picks: Sequence[Pick], lease: int) -> None:
        """Hold messages for so many microseconds or longer; what is lost, their consumer's next call is told."""
        self._extend(picks, lease, KEEP)

    def start(self, picks: Sequence[Pick], lease: int) -> None:
        """Count the delivery of messages that are about to be handed out, and hold them; what is lost is marked so."""
        self._extend(picks, lease, START)

    def forward(self, picks: Sequence[Pick], queue: str, *, atomic: bool) -> None:
        """Move messages to another queue of the same client."""
        self._move(picks, ToQueue(self._context, queue, atomic=atomic), FORWARD)

    def dead_letter(self, picks: Sequence[Pick], reason: str) -> None:
        """Move messages to the dead-letter queue."""
        self._move(picks, DeadLetters(self._context, reason), DEAD_LETTER)

    def replace(self, pick: Pick, value: Any, delay: float) -> None:
        """Exchange messages for new ones with another body."""
        move = SameShard(self._context, self._codec.encode(value), check_delay(delay))
        self._move([pick], move, REPLACE)

    def messages(self, pick: Pick) -> list[Message]:
        """The picked messages as an application sees them."""
        return [Message(pick.held, position, self._codec, self) for position in pick.positions]

    def bodies(self, pick: Pick) -> list[Any]:
        """The picked messages' bodies."""
        return list(map(self._codec.decode, pick.held.bodies(pick.positions)))

    def move(self, picks: Sequence[Pick], move: Move) -> None:
        """Move messages somewhere, by shard all or nothing; where something is lost, the rest is moved without it."""
        self._move(picks, move, FORWARD)

    def _extend(self, picks: Sequence[Pick], lease: int, verb: Verb) -> None:
        shorten, starts = verb is EXTEND, verb is START
        untils: dict[Shard, int] = {}

        def extend(shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
            untils[shard] = self._context.store.now() + lease
            request = Extend(shard, spans_of(group), lease, shorten=shorten, starts=starts)
            return self._context.retry.ask(self._context.store.extend, request)

        settling = self._settle(picks, extend, verb)
        for pick in settling.done:  # not of what is lost: an ack of it has to be told so too
            until = untils[pick.held.shard]
            pick.held.lease_until = until if shorten else max(until, pick.held.lease_until)
            pick.held.started = pick.held.started or starts
        self._raise_if_any(settling, verb)

    def _move(self, picks: Sequence[Pick], move: Move, verb: Verb) -> None:
        self._raise_if_any(self._settle(picks, move.carry_out, verb), verb)

    def _settle(self, picks: Sequence[Pick], call: Call, verb: Verb) -> Settling:
        settling = Settling(self._context, verb, call, by_receipt=self._by_receipt)
        settling.run(picks, self._failing)
        self._failing = frozenset(settling.failures)
        return settling

    def _seen(self, picks: Sequence[Pick]) -> list[Message]:
        """What hooks are told of."""
        return [message for pick in picks if pick.held.known for message in self.messages(pick)]

    def _raise_if_any(self, settling: Settling, verb: Verb) -> None:
        """Raise what the caller must know; of a lost message it is told again when it repeats what failed."""
        if settling.failures:
            raise settling.failures.error(f"{self._not_done(settling.failed, verb)}, all others were:")
        if not settling.lost or verb in (KEEP, START):
            return
        messages = [message for pick in settling.lost for message in self.messages(pick)]
        self._context.counters.add(lease_lost=len(messages))
        raise LeaseLost(
            f"{self._not_done(len(messages), verb)}, first {messages[0].id}: {_why(settling.lost)}",
            [message.receipt for message in messages] if self._by_receipt else messages,
        )

    def _not_done(self, count: int, verb: Verb) -> str:
        subject, were = ("message", "was") if count == 1 else ("messages", "were")
        return f"{count} {subject} of queue {self._context.name!r} {were} not {verb.name}"


def _why(lost: Sequence[Pick]) -> str:
    """What became of lost messages, with how many where it differs."""
    counts = {fate: sum(len(pick.with_fates(fate).positions) for pick in lost) for fate in _WHY_LOST}
    found = [fate for fate, count in counts.items() if count]
    return "; ".join(
        _WHY_LOST[fate] if len(found) == 1 else f"{counts[fate]} {_WHY_LOST[fate]}" for fate in found
    )
