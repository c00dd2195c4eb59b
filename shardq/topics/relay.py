"""The relay: copies published messages of a topic into the queues of its subscriptions. Any process may run it.

It works in rounds:

1. It claims messages of the log, then the topic's state, and enters them there as the round under way. From now on its
   subscriptions are decided.
2. It stores the copies of each subscription in one step, and acks the messages.
3. It enters that the round has ended.

A relay that finds a round under way carries it out first, as it was entered. The ids of the copies follow from the
round, and the marker beside them shows whether they were stored. So a relay may die, stand still or be overtaken at
any point. Nothing else about the topic changes while a round is under way: no subscription comes, goes or is rewound.

A subscription that is to have earlier messages is filled from the history of the log, in rounds too. It gets nothing
else until it has all of them. While it is filled with messages that were acked a minute ago or earlier, others get new
messages between these rounds. The last minute's is copied without any round of others in between, so that the history
stands still.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from shardq.base.clock import from_datetime, microseconds
from shardq.base.log import Log
from shardq.base.receipt import Receipt
from shardq.client.queue import Queue
from shardq.core.context.queue_context import QueueContexts
from shardq.core.message import Message
from shardq.core.settling.leases import JUMP, shorten_fixed_leases
from shardq.errors import InvalidMessage, LeaseLost, ShardqError, StoreUnavailable
from shardq.storage.per_process import OwnLock
from shardq.storage.writing import reporting_done
from shardq.topics.copying import Targets, empty
from shardq.topics.envelopes import Envelope
from shardq.topics.log import (
    LEASE_SECONDS,
    Chunk,
    ClaimedEnvelopes,
    envelope_of,
    horizon,
    is_waiting,
    next_chunk,
)
from shardq.topics.names import log_of, queue_of
from shardq.topics.state import Held, Round, SubscriptionRecord, TopicState, open_register

__all__ = ["APART", "Relay"]

_log = Log(__name__)

_COURTESY = 10_000_000  # microseconds; a round that is younger is left to who began it
TURN = 1.0  # seconds for which others go from round to round before somebody who waits completes theirs, and is next
PATIENCE = 15.0  # seconds for which the state is waited for
LEASE_AND_MORE = LEASE_SECONDS + 10.0  # a change waits until what a relay that died holds is free
_PAUSE = 0.02  # seconds between reads of a round of another relay
ENVELOPES = 90
_MOST_CLAIMED = 900  # while it is waited for those of a relay that died
APART = 1_000
"""Microseconds between rounds: the ids of one's copies, which count time, end before those of the next."""


class Relay:
    """The relay of one topic in one process. Safe for threads, of which one works at a time."""

    def __init__(self, contexts: QueueContexts, topic: str) -> None:
        self._topic = topic
        self._lock = OwnLock()
        self._log_context = contexts.of(log_of(topic))
        self._log = Queue(self._log_context)
        self._consumer = self._log.consumer(visibility_timeout=LEASE_SECONDS)
        self._register = open_register(contexts, topic)
        self._name = secrets.token_hex(8)
        self.targets = Targets(contexts, topic)
        self._done = 0  # the moment of the own round that is complete, and may still be entered as under way
        self._filled = False  # the last round filled a subscription
        self._stopped = False
        self._next_jump_check = 0.0

    def run(self, *, wait: float = 0.0, fills: bool = False) -> int:
        """Relay waiting messages, and fill the subscriptions that are to be filled.

        Returns how many envelopes were relayed. Waits up to ``wait`` seconds for the first one. Messages that are
        published later are left to the next call, so that it ends though others publish. With ``fills`` all but the
        first is left to it, too. It ends after the round at hand when it is stopped. Raises QueueNotFound when the
        topic is deleted.
        """
        relayed, came_later = 0, False
        with self._lock.plain:
            until = 0 if fills else self._log_context.store.now() + microseconds(wait)
            while not self._stopped:
                messages = [] if came_later else self._receive(0.0 if relayed or self._done else wait)
                if not messages and not (self._done if came_later else self._is_due()):
                    return relayed
                if not self._relay(messages):
                    return relayed
                relayed += len(messages)
                came_later = came_later or self._are_later(messages, until)
        return relayed

    def fill(self, name: str, incarnation: str) -> SubscriptionRecord | None:
        """Relay until a subscription has its part of the history, though another relay may be at that.

        Returns it as it is then; None when it is gone. Errors as in :meth:`run`.
        """
        while True:
            self.run(fills=True)
            record = self.read().subscriptions.get(name)
            if record is None or record.incarnation != incarnation:
                return None
            if record.filling is None:
                return record

    def change(self, change: Callable[[TopicState], TopicState]) -> TopicState:
        """Change the state while no round is under way; returns it as it is then.

        Raises the errors of the change, with nothing changed; StoreUnavailable when others have the state all the
        time.
        """
        claimed = ClaimedEnvelopes(())
        with self._lock.plain:
            try:
                while (held := self._take(claimed, LEASE_AND_MORE)) is not None:
                    if (state := self._changed(held, change)) is not None:
                        return state
            finally:
                claimed.release()
        raise StoreUnavailable(f"topic {self._topic!r} is changed by others all the time: try again")

    def _changed(self, held: Held, change: Callable[[TopicState], TopicState]) -> TopicState | None:
        """Change the state that is held; None when another client has changed it."""
        try:
            state = change(held.state.completed())
        except BaseException:
            held.release()
            raise
        if state == held.state:
            held.release()
            return state
        return state if self._replace(held, state) else None

    def moment(self, state: TopicState) -> int:
        """Return a moment for the next round: later than that of any round before."""
        return max(self._log_context.store.now(), state.at + APART)

    def read(self) -> TopicState:
        """Read the topic's present state."""
        with self._lock.plain:
            return self._register.read()

    def stop(self) -> None:
        """End waiting, and :meth:`run` after the round at hand. For other threads."""
        self._stopped = True
        self._consumer.stop()

    def close(self) -> None:
        """Release its messages, and end."""
        with self._lock.plain:
            self._consumer.close()
            self._register.close()

    # -- rounds -------------------------------------------------------------------------------------------------

    def _receive(self, wait: float) -> list[Message]:
        return list(filter(_is_readable, self._consumer.receive(ENVELOPES, wait=wait)))

    def _are_later(self, messages: Sequence[Message], moment: int) -> bool:
        return bool(messages) and all(from_datetime(each.enqueued_at) > moment for each in messages)

    def _is_due(self) -> bool:
        """Return whether the state has to be read though nothing is published."""
        if self._done:
            return True
        state = self._register.read()
        self._check_clock_jump(state)
        return state.round is not None or any(each.filling for each in state.subscriptions.values())

    def _check_clock_jump(self, state: TopicState) -> None:
        """Release the messages of a relay that died while the clock was ahead, if the last round is ahead."""
        is_ahead = state.at > self._log_context.store.now() + JUMP
        if is_ahead and time.monotonic() >= self._next_jump_check:
            self._next_jump_check = time.monotonic() + LEASE_SECONDS
            shorten_fixed_leases(self._log_context, microseconds(LEASE_SECONDS))

    def _relay(self, messages: list[Message]) -> bool:
        """Relay messages in as many rounds as it takes; False when others had the state for too long."""
        claimed = ClaimedEnvelopes(messages)
        try:
            while not self._stopped and (held := self._take(claimed)) is not None:
                if not self._step(held, claimed):
                    return True
            return False
        finally:
            claimed.release()

    def _take(self, claimed: ClaimedEnvelopes, patience: float | None = None) -> Held | None:
        """Claim the state, with no round under way that is not complete; None when others have it for too long."""
        began = time.monotonic()
        until = began + (PATIENCE if patience is None else patience)
        while (left := until - time.monotonic()) > 0:
            held = self._register.take(left)
            if held is None:
                return None
            try:
                if self._is_free(held.state, claimed, courteous=time.monotonic() < began + TURN):
                    return held
            except BaseException:
                held.release()
                raise
            held.release()
            time.sleep(_PAUSE)
        return None

    def _is_free(self, state: TopicState, claimed: ClaimedEnvelopes, *, courteous: bool) -> bool:
        """Return whether no round is under way, or the one that is was completed now."""
        round_ = state.round
        if round_ is None or round_.at == self._done:
            return True
        is_young = self._log_context.store.now() - round_.at < _COURTESY
        if courteous and is_young and round_.by != self._name:
            return False
        self._copy(state, round_, None)
        if not round_.filling and not self._acked(round_, claimed):
            if len(claimed) < _MOST_CLAIMED:
                claimed.add(self._receive(0.0))  # maybe what the relay that died had
            return False
        self._done = round_.at
        return True

    def _step(self, held: Held, claimed: ClaimedEnvelopes) -> bool:
        """Begin the next round and carry it out; False when nothing is left to do."""
        before = held.state
        try:
            state, round_, envelopes = self._next(before.completed(), held, claimed)
        except BaseException:
            held.release()
            raise
        if state == before:
            held.release()
            self._done = 0  # another relay has entered that it has ended
            return False
        if not self._replace(held, state):
            return True
        claimed.entered(round_)
        if round_ is not None:
            self._copy(state, round_, envelopes)
            if round_.filling or self._acked(round_, claimed):
                self._done = round_.at
        return bool(claimed) or state.filling() is not None

    def _replace(self, held: Held, state: TopicState) -> bool:
        """Store another state; False when another client has changed it."""
        try:
            held.replace(state)
        except LeaseLost:
            return False
        except BaseException:
            with suppress(ShardqError):  # what became of the change is what the caller has to know
                held.release()
            raise
        self._done = 0
        with reporting_done(lambda: f"the state of topic {self._topic!r} is changed: repeat the call"):
            self.targets.unmark(held.state)
        self.targets.forget_deleted(state)
        return True

    def _next(
        self, state: TopicState, held: Held, claimed: ClaimedEnvelopes
    ) -> tuple[TopicState, Round | None, Sequence[Envelope]]:
        """Return the next step: the state with a round and its envelopes, or a state without one."""
        due, at = self._log_context.store.now(), self.moment(state)
        while (name := state.filling()) is not None:
            record, chunk = self._fill(name, state.subscriptions[name], held)
            state = state.with_subscription(name, record)
            if chunk is None:
                continue
            if self._filled and claimed and not chunk.last:
                break
            self._filled = True
            round_ = Round(
                at, due, self._name, tuple(each.id for each in chunk.envelopes), name, chunk.cursor
            )
            return state.entered(round_), round_, chunk.envelopes
        self._filled = False
        chosen = claimed.next(self._log_context.store.now())
        if not chosen:
            return state, None, ()
        round_ = Round(at, due, self._name, tuple(message.receipt for message in chosen))
        return state.entered(round_), round_, [Envelope.received(message) for message in chosen]

    def _fill(
        self, name: str, record: SubscriptionRecord, held: Held
    ) -> tuple[SubscriptionRecord, Chunk | None]:
        """Return the next part of the history for a subscription. When there is nothing left, its filling ends."""
        filling = record.filling
        assert filling is not None
        if filling.empties:
            context = self.targets.context(queue_of(self._topic, name, record.incarnation))
            if context is not None:
                empty(context, filling.begun, held.keep)
            filling = msgspec.structs.replace(filling, empties=False)
        over = horizon(self._log_context)
        reached = max(filling.cursor[0], filling.since)
        missed = record.missed + (over - reached if 0 < reached < over else 0)
        if filling.cursor[0] < over:
            filling = msgspec.structs.replace(filling, cursor=(over, "", b"", 0))
        chunk = next_chunk(self._log_context, filling.cursor)
        return msgspec.structs.replace(record, filling=filling if chunk else None, missed=missed), chunk

    def _copy(self, state: TopicState, round_: Round, envelopes: Sequence[Envelope] | None) -> None:
        """Store the messages that each subscription gets of a round. Without envelopes: as another relay may have."""
        again = envelopes is None
        if envelopes is None:
            found = (envelope_of(self._log_context, each) for each in round_.ids)
            envelopes = [each for each in found if each is not None]
        self.targets.copy(state, round_, envelopes, again=again)

    def _acked(self, round_: Round, claimed: ClaimedEnvelopes) -> bool:
        """Ack the messages of a round; False when another relay holds some, and acks them when it finds the round."""
        try:
            self._log.ack(round_.messages)
        except LeaseLost as error:
            lost = [str(Receipt.parse(receipt).id) for receipt in error.messages]
            left = [each for each in lost if not claimed.ack(each)]
            return not any(is_waiting(self._log_context, each) for each in left)
        return True


def _is_readable(message: Message) -> bool:
    """Return False for a message that is damaged in the store: it comes again when its lease expires."""
    try:
        message.raw  # noqa: B018 - reads it
    except InvalidMessage as error:
        _log.error("message %s of a topic is not relayed: %s", message.id, error)
        return False
    return True
