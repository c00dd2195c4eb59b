"""The table of settle operations on held messages, and the meaning of lost or gone for each."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shardq.core.held import HeldSlice, NamedSpans, Selection, SettleState
from shardq.core.sending import appending
from shardq.core.sending.appending import AppendPolicy

__all__ = [
    "ACK", "BLOCK", "DEAD_LETTER", "DROP", "EDIT", "EXHAUST", "EXTEND", "FORWARD", "HOLD", "KEEP",
    "OVERFLOW", "REDRIVE", "RELEASE", "REPLACE", "RETURN", "START", "SUPERSEDE", "UNBLOCK", "SettleOperation",
    "note_returned", "share_returned",
]  # fmt: skip


class SettleOperation(msgspec.Struct, frozen=True):
    """An operation on held messages, and its result when one of them is lost or gone.

    An attempt that was not answered may have done it already: its repetition then finds the messages lost or gone.
    """

    name: str
    counter: str
    state: SettleState  # of the messages that it was done to
    keeps: bool = False  # they stay in the queue's history
    holds: bool = False  # their leases are extended in the store, where nothing else becomes of them
    shortens: bool = False  # a lease that ends later than asked for is shortened
    starts: bool = False  # a delivery is counted
    blocks: bool = False  # they block their groups, under no lease
    uncounted: bool = False  # the delivery is not counted
    policy: AppendPolicy | None = None  # under which they enter the queue that they move to; None: no move
    in_place: bool = False  # what it moves keeps its place in its group
    repeatable: bool = False  # it may be done again to messages of that state
    gone_is_done: bool = False  # a message that is gone before its lease ended counts as done
    unanswered_explains_gone: bool = False
    unanswered_explains_lost: bool = False
    reports_lost: bool = True  # LeaseLost is raised for what is lost
    hook: str = ""  # the name of the operation for hooks; "": none run around it
    event: str = ""  # the kind of what is recorded of the messages; "": nothing
    event_if_delayed: str = ""  # the same with a delay; "": no other

    @property
    def moves(self) -> bool:
        """True when it moves messages: all of a shard or none.

        Messages that an unanswered attempt has moved are found lost.
        """
        return self.policy is not None

    @property
    def makes_pending(self) -> bool:
        """True when the messages are pending again in their shard."""
        return self.state is SettleState.RELEASED and not self.moves and not self.holds

    @property
    def returns_behind(self) -> bool:
        """True when it also releases the messages that are held behind in their groups."""
        return self.makes_pending or self.blocks or self.in_place

    @property
    def keeps_open(self) -> bool:
        """True when the holder of the messages continues to hold them."""
        return self.holds and self.state is SettleState.OPEN

    @property
    def barred(self) -> tuple[SettleState, ...]:
        """The states that forbid the operation."""
        barred = {SettleState.LOST, SettleState.RELEASED, SettleState.FINISHED}
        return tuple(barred - {self.state}) if self.repeatable else tuple(barred)


_OPEN, _FINISHED, _RELEASED = SettleState.OPEN, SettleState.FINISHED, SettleState.RELEASED

ACK = SettleOperation(
    "acked", "acked", _FINISHED,
    keeps=True, repeatable=True, gone_is_done=True, unanswered_explains_gone=True, hook="ack", event="acked",
)  # fmt: skip
DROP = SettleOperation(
    "dropped", "expired", _FINISHED,
    gone_is_done=True, unanswered_explains_gone=True, reports_lost=False, event="expired",
)  # fmt: skip
OVERFLOW = msgspec.structs.replace(DROP, counter="dropped", event="dropped")
SUPERSEDE = msgspec.structs.replace(DROP, counter="deduplicated", event="dropped")
RELEASE = SettleOperation(
    "released", "released", _RELEASED,
    repeatable=True, unanswered_explains_gone=True, unanswered_explains_lost=True, hook="release", event="released",
)  # fmt: skip
RETURN = msgspec.structs.replace(RELEASE, uncounted=True, event="returned", event_if_delayed="snoozed")
EXTEND = SettleOperation(
    "extended", "extended", _OPEN, holds=True, shortens=True, hook="extend", event="extended"
)
KEEP = SettleOperation("extended", "extended", _OPEN, holds=True, gone_is_done=True, reports_lost=False)
HOLD = msgspec.structs.replace(KEEP, gone_is_done=False)  # of permits: one that was removed is lost
START = SettleOperation("handed out", "extended", _OPEN, holds=True, starts=True, reports_lost=False)
FORWARD = SettleOperation(
    "forwarded", "forwarded", _FINISHED,
    keeps=True, unanswered_explains_gone=True, policy=appending.FORWARD, hook="forward", event="forwarded",
)  # fmt: skip
REDRIVE = msgspec.structs.replace(FORWARD, keeps=False, policy=appending.REDRIVE, event="redriven")
DEAD_LETTER = SettleOperation(
    "dead-lettered", "dead_lettered", _FINISHED,
    unanswered_explains_gone=True, policy=appending.DEAD_LETTER, hook="dead_letter", event="dead_lettered",
)  # fmt: skip
EXHAUST = SettleOperation(
    "released", "dead_lettered", _RELEASED,
    repeatable=True, unanswered_explains_gone=True, policy=appending.DEAD_LETTER, hook="dead_letter",
    event="dead_lettered",
)  # fmt: skip
BLOCK = SettleOperation(
    "blocked",
    "dead_lettered",
    _RELEASED,
    holds=True,
    blocks=True,
    repeatable=True,
    hook="dead_letter",
    event="blocked",
)
REPLACE = SettleOperation(
    "released", "released", _RELEASED,
    unanswered_explains_gone=True, policy=appending.REPLACE, in_place=True, hook="release", event="replaced",
)  # fmt: skip
UNBLOCK = msgspec.structs.replace(
    REPLACE, counter="forwarded", policy=appending.UNBLOCK, hook="forward", event="redriven"
)
EDIT = msgspec.structs.replace(REPLACE, name="edited", counter="forwarded", hook="forward")


def share_returned(held: Iterable[HeldSlice]) -> None:
    """Let the slices of a claim in a shard of groups know what was released with an earlier message of its group."""
    returned = set[str]()
    for piece in held:
        piece.returned = returned


def note_returned(group: Iterable[Selection], lost: NamedSpans) -> None:
    """Note in which groups messages were released: the store has released those behind them, too."""
    for selection in group:
        held = selection.held
        if (
            held.returned is not None
            and held.bundle.group
            and selection.without(selection.within(lost)).positions
        ):
            held.returned.add(held.bundle.group)
