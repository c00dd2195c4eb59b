"""Recording the outcomes of messages that were held, in the logs of events, and showing them to hooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from shardq.base.receipt import MessageId
from shardq.core.context.event_writer import Entry
from shardq.core.context.identity import holder_id
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice, Selection
from shardq.core.hooks import HookCall, Hooks
from shardq.core.message import Message
from shardq.core.settling.operations import SettleOperation

__all__ = ["NO_DETAILS", "EventDetails", "observed", "record_claimed", "record_noted", "record_settled"]

_BY_NOBODY = ("expired", "dropped")  # claimed for that only: who did so tells nothing


class EventDetails:
    """The details of events of settled messages: the reason, and the new ids of moved messages."""

    def __init__(
        self, text: str = "", *, source: QueueContext | None = None, target: QueueContext | None = None
    ) -> None:
        self.text, self.target = text, target
        self._wanted = any(each is not None and each.keeps_events for each in (source, target))
        self._places: dict[tuple[HeldSlice, int], MessageId | None] = {}

    def note(self, selection: Selection, places: Iterable[MessageId], *, sure: bool = True) -> None:
        """Note the present ids of selected messages, if events are kept.

        If the ids are not sure, and differ from unsure ones that were noted before, they are unknown.
        """
        if not self._wanted:
            return
        for position, place in zip(selection.positions, places, strict=True):
            known = self._places.get((selection.held, position), place)
            self._places[selection.held, position] = place if sure or known == place else None

    def note_bundle(self, selection: Selection, first: MessageId, *, sure: bool) -> None:
        """Note that selected messages are a bundle of their own."""
        places = (first.after(number) for number in range(len(selection.positions)))
        self.note(selection, places, sure=sure)

    def place(self, held: HeldSlice, position: int) -> MessageId | None:
        """Return the present id of a message, if it was moved and that is known."""
        return self._places.get((held, position))


NO_DETAILS = EventDetails()


@contextmanager
def observed(
    hooks: Hooks, operation: SettleOperation, queue: str, messages: Sequence[Message]
) -> Iterator[HookCall]:
    """Run hooks around an operation on held messages."""
    call = HookCall(operation=operation.hook, queue=queue, messages=messages, batch=len(messages) != 1)
    with hooks.around(call):
        yield call


def record_claimed(context: QueueContext, owner: str, held: Sequence[HeldSlice]) -> None:
    """Record that a consumer of this name claimed messages, and acked those that its claim finished."""
    if not context.keeps_events:
        return
    entries = [_entry("claimed", piece, 0, piece.count, owner=owner) for piece in held]
    entries += [_entry("acked", piece, 0, piece.count) for piece in held if piece.finished]
    context.events.record(context, entries)


def record_noted(context: QueueContext, selections: Sequence[Selection], text: str, *, failed: bool) -> None:
    """Record an application's note about messages that it holds."""
    if context.keeps_events:
        kind = "failed" if failed else "noted"
        context.events.record(context, _entries(kind, selections, text=text))


def record_settled(
    context: QueueContext,
    operation: SettleOperation,
    done: Sequence[Selection],
    delay: int,
    details: EventDetails = NO_DETAILS,
) -> None:
    """Record that messages were settled. A move is recorded for both queues, as far as they keep events."""
    if not operation.event or not done:
        return
    both = {each.name: each for each in (context, details.target) if each is not None}
    contexts = [each for each in both.values() if each.keeps_events]
    if not contexts:
        return
    kind = operation.event_if_delayed if delay and operation.event_if_delayed else operation.event
    shown = delay if operation.makes_pending or operation.keeps_open else None
    entries = list(_entries(kind, done, text=details.text, delay=shown, details=details))
    context.events.record(contexts[0], entries, *contexts[1:])


def _entries(
    kind: str,
    selections: Sequence[Selection],
    *,
    text: str,
    delay: int | None = None,
    details: EventDetails = NO_DETAILS,
) -> Iterator[Entry]:
    """Yield an entry for each run of neighbouring messages that have gone to neighbouring places."""
    for selection in selections:
        held = selection.held
        for first, count in _runs(selection, details):
            to = details.place(held, first)
            yield _entry(kind, held, first, count, text=text, delay=delay, to="" if to is None else str(to))


def _runs(selection: Selection, details: EventDetails) -> Iterator[tuple[int, int]]:
    """Yield the first position and the length of each run."""

    def line(numbered: tuple[int, int]) -> object:
        number, position = numbered
        to = details.place(selection.held, position)
        return position - number, to and (to.shard, to.bundle_id, to.position - number)

    for _, run in groupby(enumerate(selection.positions), key=line):
        positions = [position for _, position in run]
        yield positions[0], len(positions)


def _entry(kind: str, held: HeldSlice, first: int, count: int, **facts: object) -> Entry:
    holder = "" if kind in _BY_NOBODY else holder_id(held.token)
    identity = str(held.message_id(first))
    return Entry(kind, identity, count, held.deliveries, holder, **facts)  # type: ignore[arg-type]
