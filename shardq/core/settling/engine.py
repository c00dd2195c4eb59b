"""Settling the messages that a consumer holds.

Each call settles all messages that are still held, then raises LeaseLost with the others. When a shard fails, the other
shards are settled; the error is raised at the end.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from shardq.base.clock import microseconds
from shardq.base.codec import BYTES, Codec
from shardq.base.large_body import no_large_body, not_in_memory
from shardq.base.shard import Shard
from shardq.core.context.decision_log import enter_reason, may_block
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Answer
from shardq.core.held import HeldSlice, Selection, SettleState
from shardq.core.hooks import headers_to_forward
from shardq.core.large.bodies import open_body
from shardq.core.logs.results import Result, take_back, write_results
from shardq.core.message import Message
from shardq.core.sending.prepared import check_delay, check_headers, check_priority
from shardq.core.settings import QueueSettings, check_number
from shardq.core.settling.dead_letters import EXHAUSTED, check_reason
from shardq.core.settling.events import NO_DETAILS, EventDetails, observed, record_noted
from shardq.core.settling.moves import Changes, DeadLetters, Move, ToQueue, WithBody
from shardq.core.settling.operations import (
    ACK,
    BLOCK,
    DEAD_LETTER,
    EXHAUST,
    EXTEND,
    KEEP,
    RELEASE,
    RETURN,
    START,
    SettleOperation,
)
from shardq.core.settling.settle import Call, SettleRun, by_shard, settle, spans_of
from shardq.errors import LeaseLost
from shardq.storage.requests import Fenced
from shardq.storage.writing import optional, reporting_done

__all__ = ["MAX_LEASE_SECONDS", "SettleEngine"]


_DELIVERIES = attrgetter("held.deliveries")

MAX_LEASE_SECONDS = 7 * 86_400.0

_WHY_LOST = {
    SettleState.FINISHED: "acked or moved before by this consumer",
    SettleState.RELEASED: "released before by this consumer",
    SettleState.LOST: "lease over, and delivered again: extend leases, or raise the visibility timeout",
}
_OR_SETTLED = "; or settled before, maybe in another process"
_OR_GONE = "; or acked or removed before, as by a later holder: roll the transaction back"
_WHY_LOST_IN_GROUPS = (
    "or an earlier message of its group was released, or had its lease run out: it comes after that"
)


class SettleEngine:
    """Settles held messages of one queue for one consumer, and reports to it which shards have released messages."""

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

    def ack(self, selections: Sequence[Selection], results: Sequence[tuple[Selection, Any]] = ()) -> None:
        """Finish messages, single ones of them with a result, which is stored first."""
        hooks, name = self._context.hooks, self._context.name
        if hooks is not None and (messages := self._seen(selections)):
            hooks.before_ack(name, messages)
        written = self._write(results) if results else ()
        settling = self._settle(selections, ACK)
        if written:
            with optional():  # what became of the ack is what the caller has to know
                take_back(self._context, written, settled=[*settling.done, *settling.lost], own=settling.own)
        if hooks is not None and (messages := self._seen(settling.done)):
            hooks.after_ack(name, messages)
        if settling.failures or settling.lost:
            self._raise_if_any(settling, ACK)

    def _write(self, results: Sequence[tuple[Selection, Any]]) -> list[Result]:
        """Store the results of messages that are still open."""
        still_open = [(each, value) for each, value in results if each.in_states(SettleState.OPEN).positions]
        return write_results(self._context, self._codec, still_open) if still_open else []

    def release(self, selections: Sequence[Selection], delay: float, reason: str | None = None) -> None:
        """Release messages, deliverable again after ``delay`` seconds.

        Those that had their last delivery become dead letters, with the reason. They go first, as messages behind them
        in their groups are released with them. Messages that can no longer be read are released all the same.
        """
        duration, why = check_delay(delay), EXHAUSTED if reason is None else check_reason(reason)
        last: list[Selection] = []
        others = selections
        most = self._context.live.known.max_deliveries
        if most is not None and max(map(_DELIVERIES, selections), default=0) >= most:
            others = []
            for each in selections:
                (last if self.is_last(each.held) and each.held.damage is None else others).append(each)
        given_up: SettleRun | None = None
        try:
            if last:
                given_up = self._give_up(last, why, EXHAUST)
        finally:
            settling = self._release(others, RELEASE, duration)
        if given_up is not None:
            settling.add(given_up)
            self._failing = frozenset(settling.failures)
        self._raise_if_any(settling, RELEASE)

    def return_uncounted(self, selections: Sequence[Selection], delay: float = 0.0) -> None:
        """Give messages back without a delivery; those without a delay that never had one take their places again."""
        self._raise_if_any(self._release(selections, RETURN, check_delay(delay)), RETURN)

    def is_last(self, held: HeldSlice) -> bool:
        """Return whether messages have had the deliveries that their queue allows.

        Reads the settings only if it may be.
        """
        return self._reaches(held, self._context.live.known) and self._reaches(held, self._context.settings)

    def is_lost(self, held: HeldSlice, position: int) -> bool:
        """Return whether a message is lost, as far as is known, or its lease has expired by the store's clock."""
        return held.is_lost(position, self._context.store.now())

    def extend(self, selections: Sequence[Selection], seconds: float) -> None:
        """Hold messages for ``seconds`` from now."""
        check_number("seconds", seconds, 0.0, MAX_LEASE_SECONDS)
        self._extend(selections, microseconds(seconds), EXTEND)

    def keep(self, selections: Sequence[Selection], lease: int) -> None:
        """Hold messages for ``lease`` microseconds or longer. A lost one is reported when its consumer settles it."""
        self._extend(selections, lease, KEEP)

    def start(self, selections: Sequence[Selection], lease: int) -> None:
        """Count the delivery of messages that are about to be handed out, and hold them.

        Lost messages are marked so.
        """
        self._extend(selections, lease, START)

    def forward(
        self,
        selections: Sequence[Selection],
        queue: str,
        *,
        body: Any = None,
        headers: Mapping[str, Any] | None = None,
        delay: float = 0.0,
        priority: int | None = None,
        atomic: bool,
    ) -> None:
        """Move messages to another queue of the same client.

        Arguments that are None leave their part of the messages unchanged.
        """
        if self._context.hooks is not None:
            headers = headers_to_forward(self._context.hooks, queue, headers, self._seen(selections))
        changes = Changes(
            None if body is None else self._codec.encode(body),
            None if headers is None else check_headers(headers) or {},
            None if priority is None else check_priority(priority),
            check_delay(delay),
        )
        self.move(selections, ToQueue(self._context, queue, changes, atomic=atomic))

    def dead_letter(self, selections: Sequence[Selection], reason: str) -> None:
        """Move messages to the dead-letter queue, or let them block their groups, as the queue asks for it."""
        self._raise_if_any(self._give_up(selections, check_reason(reason), DEAD_LETTER), DEAD_LETTER)

    def replace(self, selection: Selection, value: Any, delay: float, *, keeps_due: bool = False) -> None:
        """Exchange messages for new ones with another body, which may keep their due time."""
        body, duration = self._codec.encode(value), check_delay(delay)
        self.move([selection], WithBody(self._context, body, duration, keeps_due=keeps_due))

    def note(self, selection: Selection, text: str, *, failed: bool) -> None:
        """Record a note about messages in the log of their queue's events."""
        record_noted(self._context, [selection], check_reason(text, "text"), failed=failed)

    def messages(self, selection: Selection) -> list[Message]:
        """Return the selected messages as an application sees them."""
        return [Message(selection.held, position, self._codec, self) for position in selection.positions]

    def bodies(self, selection: Selection) -> list[Any]:
        """Return the selected messages' bodies; raises InvalidMessage for one that is large."""
        if selection.held.messages.large is not None and selection.positions:
            raise not_in_memory(str(selection.held.message_id(0)), selection.held.messages.large)
        bodies = selection.held.bodies(selection.positions)
        return list(bodies) if self._codec is BYTES else list(map(self._codec.decode, bodies))

    def open(self, held: HeldSlice) -> io.BufferedReader:
        """Open the large body of the only message of a slice, as a file. Raises InvalidMessage when it has none."""
        body, identity = held.messages.large, str(held.message_id(0))
        if body is None:
            raise no_large_body(identity)
        return open_body(self._context, body, identity)

    def move(self, selections: Sequence[Selection], move: Move) -> None:
        """Move messages in steps: all of a step that are in one shard, or none.

        If some are lost, the others are moved. When a step fails, later ones move nothing from that shard.
        """
        self._raise_if_any(self._move(selections, move), move.operation)

    def _move(self, selections: Sequence[Selection], move: Move) -> SettleRun:
        settling = SettleRun(self._context, move.operation)
        for part in move.parts(selections):
            moved = SettleRun(self._context, move.operation)
            for step in part:
                rest = moved.without_failed(step)
                moved.add(self._settle(rest, move.operation, move.carry_out, details=move.details))
            settling.add(moved)
        self._failing = frozenset(settling.failures)
        return settling

    def _give_up(self, selections: Sequence[Selection], reason: str, operation: SettleOperation) -> SettleRun:
        """Let messages block their groups where the queue asks for it, and move the others."""
        blocking: list[Selection] = []
        moving: list[Selection] = []
        for each in selections:
            (blocking if may_block(self._context, each.held.shard) else moving).append(each)
        if not blocking:
            return self._move(moving, DeadLetters(self._context, reason, operation))
        call = partial(_block, self._context, reason)
        settling = self._settle(blocking, BLOCK, call, details=EventDetails(reason))
        if moving:
            blocks = bool(settling.done) or settling.failures.unknown
            with reporting_done(lambda: "others may block their groups: repeat the call" if blocks else ""):
                settling.add(self._move(moving, DeadLetters(self._context, reason, operation)))
            self._failing = frozenset(settling.failures)
        return settling

    def _release(self, selections: Sequence[Selection], operation: SettleOperation, delay: int) -> SettleRun:
        settling = self._settle(selections, operation, duration=delay)
        for shard in by_shard(settling.done):
            self._released(shard)
        return settling

    def _reaches(self, held: HeldSlice, settings: QueueSettings) -> bool:
        return (
            held.known and settings.max_deliveries is not None and held.deliveries >= settings.max_deliveries
        )

    def _extend(self, selections: Sequence[Selection], lease: int, operation: SettleOperation) -> None:
        untils: dict[Shard, int] = {}

        def extend(shard: Shard, group: Sequence[Selection]) -> Answer[Fenced]:
            untils[shard] = self._context.store.now() + lease
            return settle(self._context, operation, shard, spans_of(group), lease)

        settling = self._settle(selections, operation, extend, duration=lease)
        for selection in settling.done:  # not of what is lost: an ack of it must raise LeaseLost too
            held = selection.held
            held.extended(selection.positions, untils[held.shard], shortens=operation.shortens)
            held.started = held.started or operation.starts
        self._raise_if_any(settling, operation)

    def _settle(
        self,
        selections: Sequence[Selection],
        operation: SettleOperation,
        call: Call | None = None,
        *,
        duration: int = 0,
        details: EventDetails = NO_DETAILS,
    ) -> SettleRun:
        settling = SettleRun(
            self._context, operation, call, duration=duration, by_receipt=self._by_receipt, details=details
        )
        hooks = self._context.hooks
        messages: list[Message] = []
        if hooks is not None and operation.hook:
            messages = [message for each in selections for message in self.messages(each)]
        if hooks is None or not messages:
            settling.run(selections, self._failing)
        else:
            with observed(hooks, operation, self._context.name, messages) as observing:
                settling.run(selections, self._failing)
                lost = LeaseLost(f"{settling.lost_count} messages are lost") if settling.lost else None
                observing.error = next(iter(settling.failures.values()), lost)
        self._failing = frozenset(settling.failures)
        return settling

    def _seen(self, selections: Sequence[Selection]) -> list[Message]:
        """Return the messages that hooks are shown: those whose bodies are known."""
        return [
            message
            for selection in selections
            if selection.held.known
            for message in self.messages(selection)
        ]

    def _raise_if_any(self, settling: SettleRun, operation: SettleOperation) -> None:
        """Raise the errors of shards, or else LeaseLost: it is raised then when the caller repeats the failed ones."""
        if settling.failures:
            what = f"{self._not_done(settling.failed, operation)}, all others were:"
            raise settling.failures.error(what, done=bool(settling.done))
        if not settling.lost or not operation.reports_lost:
            return
        messages = [message for selection in settling.lost for message in self.messages(selection)]
        self._context.counters.add(lease_lost=len(messages))
        raise LeaseLost(
            f"{self._not_done(len(messages), operation)}, first {messages[0].id}: {_why(settling.lost)}"
            f"{_OR_SETTLED if self._by_receipt else ''}{_OR_GONE if self._context.outside else ''}",
            [message.receipt for message in messages] if self._by_receipt else messages,
        )

    def _not_done(self, count: int, operation: SettleOperation) -> str:
        subject, were = ("message", "was") if count == 1 else ("messages", "were")
        return f"{count} {subject} of queue {self._context.name!r} {were} not {operation.name}"


def _block(context: QueueContext, reason: str, shard: Shard, group: Sequence[Selection]) -> Answer[Fenced]:
    """Let selected messages of a shard block their groups, once it is noted why."""
    ids = [str(each.held.message_id(position)) for each in group for position in each.positions]
    enter_reason(context, ids, reason)
    return settle(context, BLOCK, shard, spans_of(group))


def _why(lost: Sequence[Selection]) -> str:
    """Explain why messages are lost, with the number for each reason if there are several."""
    counts = {
        state: sum(len(selection.in_states(state).positions) for selection in lost) for state in _WHY_LOST
    }
    found = [state for state, count in counts.items() if count]
    why = "; ".join(
        _WHY_LOST[state] if len(found) == 1 else f"{counts[state]} {_WHY_LOST[state]}" for state in found
    )
    grouped = any(selection.held.shard.is_grouped for selection in lost)
    return f"{why}; {_WHY_LOST_IN_GROUPS}" if grouped and SettleState.LOST in found else why
