"""Ack, release and extend: what a consumer says of the messages that it holds, and finding out what it lost.

Each acts on all that is still the caller's and raises LeaseLost for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shardq.clock import microseconds
from shardq.codec import Codec
from shardq.delivery.context import QueueContext
from shardq.delivery.forwarding import DeadLetters, Move, SameShard, ToQueue
from shardq.delivery.held import Fate, Pick
from shardq.delivery.outgoing import check_delay
from shardq.delivery.picks import by_shard, spans_of
from shardq.delivery.retry import Answer
from shardq.errors import LeaseLost, ShardqError
from shardq.message import Message
from shardq.settings import check_number
from shardq.sharding.shard import Shard
from shardq.storage.requests import Acknowledge, Extend, Fenced, Release, Span

__all__ = ["MAX_LEASE_SECONDS", "Settlement"]

MAX_LEASE_SECONDS = 7 * 86_400.0


class _Verb(msgspec.Struct, frozen=True):
    """How one of the operations ends, and how the store's exceptions to it are read."""

    name: str
    counter: str
    fate: Fate  # of the messages that it was done to
    repeatable: bool = False  # doing it again to messages of that fate is harmless
    gone_is_done: bool = False  # a message that is not stored any more has what the caller wanted
    lost_after_unknown_is_done: bool = False  # the first attempt may be why it is not held any more


_ACK = _Verb("acked", "acked", Fate.FINISHED, repeatable=True, gone_is_done=True)
_RELEASE = _Verb("released", "released", Fate.RELEASED, repeatable=True, lost_after_unknown_is_done=True)
_EXTEND = _Verb("extended", "extended", Fate.OPEN)
_KEEP = _Verb("extended", "extended", Fate.OPEN, gone_is_done=True)
_FORWARD = _Verb("forwarded", "forwarded", Fate.FINISHED)
_DEAD_LETTER = _Verb("dead-lettered", "dead_lettered", Fate.FINISHED)


class Settlement:
    """Settles held messages of one queue for one consumer; tells it which shards have messages again."""

    def __init__(
        self, context: QueueContext, codec: Codec, released: Callable[[Shard], None] = lambda _: None
    ) -> None:
        self._context, self._codec, self._released = context, codec, released

    def ack(self, picks: Sequence[Pick]) -> None:
        """Finish messages."""
        keep = self._context.settings.history_retention > 0
        hooks, name = self._context.hooks, self._context.name
        if hooks is not None:
            hooks.before_ack(name, [message for pick in picks for message in self.messages(pick)])

        def acknowledge(shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
            request = Acknowledge(shard, spans_of(group), keep)
            return self._context.retry.ask(self._context.store.acknowledge, request)

        done, lost = self._settle(picks, acknowledge, _ACK)
        if hooks is not None and done:
            hooks.after_ack(name, [message for pick in done for message in self.messages(pick)])
        self._raise_lost(lost, _ACK)

    def release(self, picks: Sequence[Pick], delay: float, *, started: bool = True) -> None:
        """Give messages back, deliverable again after so many seconds."""
        microseconds_of_delay = check_delay(delay)

        def release(shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
            request = Release(shard, spans_of(group), microseconds_of_delay, started)
            return self._context.retry.ask(self._context.store.release, request)

        done, lost = self._settle(picks, release, _RELEASE)
        for shard in by_shard(done):
            self._released(shard)
        self._raise_lost(lost, _RELEASE)

    def extend(self, picks: Sequence[Pick], seconds: float) -> None:
        """Hold messages for so many seconds from now on."""
        check_number("seconds", seconds, 0.0, MAX_LEASE_SECONDS)
        self._raise_lost(self._extend(picks, microseconds(seconds), _EXTEND), _EXTEND)

    def keep(self, picks: Sequence[Pick], lease: int) -> None:
        """Hold messages for so many microseconds or longer; what is lost, their consumer's next call is told."""
        self._extend(picks, lease, _KEEP)

    def forward(self, picks: Sequence[Pick], queue: str, *, atomic: bool) -> None:
        """Move messages to another queue of the same client."""
        self._move(picks, ToQueue(self._context, queue, atomic=atomic), _FORWARD)

    def dead_letter(self, picks: Sequence[Pick], reason: str) -> None:
        """Move messages to the dead-letter queue."""
        self._move(picks, DeadLetters(self._context, reason), _DEAD_LETTER)

    def replace(self, pick: Pick, value: Any, delay: float) -> None:
        """Exchange messages for new ones with another body."""
        move = SameShard(self._context, self._codec.encode(value), check_delay(delay))
        self._move([pick], move, _RELEASE)

    def messages(self, pick: Pick) -> list[Message]:
        """The picked messages as an application sees them."""
        return [Message(pick.held, position, self._codec, self) for position in pick.positions]

    def bodies(self, pick: Pick) -> list[Any]:
        """The picked messages' bodies."""
        return list(map(self._codec.decode, pick.held.bodies(pick.positions)))

    def move(self, picks: Sequence[Pick], move: Move) -> None:
        """Move messages somewhere, by shard all or nothing; where something is lost, the rest is moved without it."""
        self._move(picks, move, _FORWARD)

    def _extend(self, picks: Sequence[Pick], lease: int, verb: _Verb) -> list[Pick]:
        shorten = verb is not _KEEP
        untils: dict[Shard, int] = {}

        def extend(shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
            untils[shard] = self._context.store.now() + lease
            request = Extend(shard, spans_of(group), lease, shorten=shorten)
            return self._context.retry.ask(self._context.store.extend, request)

        done, lost = self._settle(picks, extend, verb)
        for pick in done:  # not of what is lost: an ack of it has to be told so too
            until = untils[pick.held.shard]
            pick.held.lease_until = until if shorten else max(until, pick.held.lease_until)
        return lost

    def _move(self, picks: Sequence[Pick], move: Move, verb: _Verb) -> None:
        _, lost = self._settle(picks, move.carry_out, verb, all_or_nothing=True)
        self._raise_lost(lost, verb)

    def _settle(
        self,
        picks: Sequence[Pick],
        call: Callable[[Shard, Sequence[Pick]], Answer[Fenced]],
        verb: _Verb,
        *,
        all_or_nothing: bool = False,
    ) -> tuple[list[Pick], list[Pick]]:
        """Call the store for each shard; returns what was done now, and what is lost.

        Where the call does all or nothing, a shard in which something is lost is called again for the rest.
        """
        done: list[Pick] = []
        barred = _barred(verb)
        lost = [pick.with_fates(*barred) for pick in picks]
        waiting = by_shard(pick.with_fates(Fate.OPEN) for pick in picks)
        while waiting:
            shard, group = waiting.popitem()
            try:
                answer = call(shard, group)
            except ShardqError:
                if verb.fate is not Fate.OPEN:
                    for pick in picks:
                        pick.held.failed = pick.held.failed.union(pick.positions)
                raise
            taken = [self._lost(pick, answer, verb) for pick in group]
            rest = [pick.without(away) for pick, away in zip(group, taken, strict=True)]
            for pick in (pick for pick in taken if pick.positions):
                pick.held.mark(pick.with_fates(Fate.OPEN).positions, Fate.LOST)
            lost += taken
            if all_or_nothing and any(pick.positions for pick in taken):
                waiting |= by_shard(rest)
                continue
            if verb.fate is not Fate.OPEN:
                for pick in rest:
                    pick.held.mark(pick.positions, verb.fate)
            done += [pick for pick in rest if pick.positions]
        self._context.counters.add(**{verb.counter: sum(len(pick.positions) for pick in done)})
        return done, [pick for pick in lost if pick.positions]

    def _lost(self, pick: Pick, answer: Answer[Fenced], verb: _Verb) -> Pick:
        """Which of the messages the store's answer takes from the caller."""
        fenced = answer.value
        if not fenced.lost and not fenced.gone:
            return Pick(pick.held, [])
        spans: list[Span] = []
        if not (answer.after_unknown and verb.lost_after_unknown_is_done):
            spans += fenced.lost
        over = self._context.store.now() > pick.held.lease_until
        if not answer.after_unknown and (over or not verb.gone_is_done):
            spans += fenced.gone
        return pick.within(spans)

    def _raise_lost(self, lost: Sequence[Pick], verb: _Verb) -> None:
        if not lost:
            return
        messages = [message for pick in lost for message in self.messages(pick)]
        self._context.counters.add(lease_lost=len(messages))
        raise LeaseLost(
            f"{len(messages)} messages of queue {self._context.name!r} were not {verb.name}, first {messages[0].id}: "
            "their lease was over and they are delivered again; extend leases, or raise the visibility timeout",
            messages,
        )


def _barred(verb: _Verb) -> tuple[Fate, ...]:
    """The fates that forbid the operation."""
    barred = {Fate.LOST, Fate.RELEASED, Fate.FINISHED}
    return tuple(barred - {verb.fate}) if verb.repeatable else tuple(barred)
