"""Settling held messages of several shards with one operation.

Each shard is settled alone, so that a shard which fails does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from shardq.base.shard import Shard
from shardq.core.browsing import find_parts
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Answer, Failures
from shardq.core.context.unique_keys import release_keys
from shardq.core.held import HeldSlice, LimitLease, NamedSpans, Selection, SettleState, in_states
from shardq.core.large.collecting import remove_body
from shardq.core.settling.events import NO_DETAILS, EventDetails, record_settled
from shardq.core.settling.operations import RETURN, SettleOperation, note_returned
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.storage.abilities import Settle
from shardq.storage.requests import Acknowledge, Append, EntryState, Extend, Fenced, Forward, Release, Span

__all__ = ["SettleRun", "by_shard", "release_selected", "release_uncounted", "settle", "spans_of"]

_POSITIONS, _COUNT, _SPAN = attrgetter("positions"), attrgetter("held.count"), attrgetter("held.span")


def settle(
    context: QueueContext,
    operation: SettleOperation,
    shard: Shard,
    spans: tuple[Span, ...],
    duration: int = 0,
    append: Append | None = None,
) -> Answer[Fenced]:
    """Settle messages of one shard by their spans. This is the only function that asks a store to settle anything.

    ``duration`` is that of a lease or a delay, in microseconds. ``append`` stores messages that are moved in one step;
    without it, moved messages are stored in their new place already.
    """
    if operation.holds:
        request: Settle = Extend(
            shard,
            spans,
            duration,
            shorten=operation.shortens,
            starts=operation.starts,
            blocks=operation.blocks,
        )
    elif operation.state is SettleState.RELEASED and operation.policy is None:
        request = Release(shard, spans, duration, started=not operation.uncounted)
    else:
        live = context.live
        if operation.keeps and live.timer() > live.read_again_at:
            live.refresh()
        keep = operation.keeps and live.known.history_retention > 0
        request = Acknowledge(shard, spans, keep, moved=operation.policy is not None and append is None)
        if append is not None:
            request = Forward(request, append, in_place=operation.in_place)
    return context.retry.ask(context.settle_commit.settle, request)


def by_shard(selections: Iterable[Selection]) -> dict[Shard, list[Selection]]:
    """Group the selections by their shard."""
    groups: dict[Shard, list[Selection]] = {}
    for shard, neighbours in groupby(selections, attrgetter("held.shard")):
        groups.setdefault(shard, []).extend(neighbours)
    return groups


def spans_of(selections: Sequence[Selection]) -> tuple[Span, ...]:
    """Return the selected messages as a store's request names them, in order."""
    if sum(map(len, map(_POSITIONS, selections))) == sum(map(_COUNT, selections)):  # whole slices
        return tuple(map(_SPAN, selections))
    return tuple([span for each in selections for span in each.held.spans(each.positions)])


Call = Callable[[Shard, Sequence[Selection]], Answer[Fenced]]


class SettleRun(msgspec.Struct, eq=False):
    """Settles the messages of each shard, once for all shards first, and then again for those that failed.

    Settled messages are marked so at once. ``failures`` has the shards that failed; their messages are still open.
    With ``by_receipt`` it is not known when the leases end. ``details`` is recorded with the events.
    """

    context: QueueContext
    operation: SettleOperation
    # None: by spans. A method of this object would be a cycle, which keeps bodies in memory.
    call: Call | None = None
    duration: int = 0  # microseconds
    by_receipt: bool = False
    details: EventDetails = NO_DETAILS
    done: list[Selection] = msgspec.field(default_factory=list)
    lost: list[Selection] = msgspec.field(default_factory=list)
    failures: Failures = msgspec.field(default_factory=Failures)
    failed: int = 0  # messages
    by_others: list[Selection] = msgspec.field(default_factory=list)  # done, but not by this

    def run(self, selections: Sequence[Selection], last: Collection[Shard] = ()) -> SettleRun:
        """Settle the messages that are open; the others are lost. The shards in ``last`` come after the others."""
        context, operation = self.context, self.operation
        grants: Collection[LimitLease] = ()
        for each in selections:
            if not each.held.untouched or each.held.grant is not None or not each.positions:
                selections, grants = self._still_open(selections)
                break
        groups = by_shard(selections)
        if last:
            groups = {shard: groups[shard] for shard in sorted(groups, key=last.__contains__)}
        context.retry.until(0.0, self._settle, groups)
        if self.failures:
            self._repeat(groups)
        count, has_traces = 0, False
        for each in self.done:
            count += len(each.positions)
            has_traces = has_traces or each.held.unique_key is not None or each.held.large is not None
        context.counters.add(**{operation.counter: count})
        if grants and (self.lost or not operation.keeps_open):
            for grant in grants:
                grant.release()
        if operation.event and (context.live.keeps_events or self.details.target is not None):
            record_settled(context, operation, self.own, self.duration, self.details)
        if has_traces and operation.state is SettleState.FINISHED:
            self._remove_traces()
        return self

    def _still_open(
        self, selections: Sequence[Selection]
    ) -> tuple[Sequence[Selection], Collection[LimitLease]]:
        """Return the messages that can be settled, and the leases to hold with them. Others count as lost."""
        still_open = [each.in_states(SettleState.OPEN) for each in selections]
        barred = [each.in_states(*self.operation.barred) for each in selections]
        self.lost += [each for each in barred if each.positions]
        grants = {each.held.grant for each in still_open if each.held.grant is not None}
        if grants and self.operation.keeps_open:
            still_open = self._covered(still_open, grants)
        return [each for each in still_open if each.positions], grants

    def _remove_traces(self) -> None:
        """Remove the unique keys and large bodies of messages that have left their queue.

        Bodies of those that left it for good, as far as they are known here.
        """
        context, operation = self.context, self.operation
        finished = [each.held for each in self.done]
        keys = [
            (held.unique_key, str(held.message_id(0))) for held in finished if held.unique_key is not None
        ]
        if keys:
            release_keys(context, keys)
        if operation.moves or (operation.keeps and context.settings.history_retention > 0):
            return
        for held in finished:
            if held.large is not None:
                remove_body(context, held.large, str(held.message_id(0)))

    def _repeat(self, groups: Mapping[Shard, Sequence[Selection]]) -> None:
        """Settle again the messages of the shards that failed, and note those of which that fails too."""
        retry = self.context.retry
        with retry.within():
            if retry.repeats:
                self._settle({shard: groups[shard] for shard in self.failures.retryable})
        for shard in self.failures:
            self._note_failed(in_states(groups[shard], SettleState.OPEN))

    @property
    def own(self) -> list[Selection]:
        """The messages that this run settled, and that were not acked or removed by others before."""
        others: dict[HeldSlice, Selection] = {}
        for gone in self.by_others:
            theirs = gone.without(self._tried(gone))
            others[gone.held] = theirs.joined(others.get(gone.held, theirs))
        done = [each.without(others[each.held]) if each.held in others else each for each in self.done]
        return [each for each in done if each.positions]

    def without_failed(self, selections: Sequence[Selection]) -> list[Selection]:
        """Leave out, as failed too, messages that must not overtake those of their shard that were not settled."""
        if not self.failures:
            return list(selections)
        failed = [each for each in selections if each.held.shard in self.failures]
        self._note_failed(in_states(failed, SettleState.OPEN))
        return [each for each in selections if each.held.shard not in self.failures]

    def add(self, other: SettleRun) -> None:
        """Take over the results of another one, so that one error names the failures of both."""
        self.done += other.done
        self.lost += other.lost
        self.failed += other.failed
        self.failures.take_over(other.failures)

    def raise_if_failed(self) -> None:
        """Raise the errors of the shards that failed."""
        if self.failures:
            raise self.failures.error(
                f"messages of queue {self.context.name!r} were not {self.operation.name}"
            )

    @property
    def done_count(self) -> int:
        """Return the number of messages that are done."""
        return sum(len(selection.positions) for selection in self.done)

    @property
    def lost_count(self) -> int:
        """Return the number of messages that are lost."""
        return sum(len(selection.positions) for selection in self.lost)

    def _covered(self, selections: Sequence[Selection], grants: Iterable[LimitLease]) -> list[Selection]:
        """Extend first the permits that have to be held with them; where these are lost, so are the messages.

        Raises the error of the store. Messages that were not handed out yet are released, and with them those behind
        them in their groups.
        """
        lost = {grant for grant in grants if not grant.hold(self.duration)}
        uncovered = [selection for selection in selections if selection.held.grant in lost]
        if uncovered and self.operation.starts:
            release_selected(self.context, uncovered)
        self._mark_lost(in_states(uncovered, SettleState.OPEN))
        return [selection for selection in selections if selection.held.grant not in lost]

    def _settle(self, groups: Mapping[Shard, Sequence[Selection]]) -> None:
        """Settle the messages of each shard; where it is all or nothing, again without what was lost."""
        context, operation = self.context, self.operation
        for shard, group in groups.items():
            rest = group
            returns_behind = group[0].held.returned is not None and operation.returns_behind
            try:
                while rest:
                    if self.call is not None:
                        answer = self.call(shard, rest)
                    else:
                        answer = settle(context, operation, shard, spans_of(rest), self.duration)
                    if answer.after_unknown:
                        self._note_unanswered(rest)
                    fenced = answer.value
                    if returns_behind:
                        note_returned(rest, NamedSpans(*fenced.lost, *fenced.gone))
                    done, rest = self._sorted_out(rest, fenced) if fenced.lost or fenced.gone else (rest, ())
                    if returns_behind:  # also what an earlier attempt has released
                        note_returned(done, NamedSpans())
                    if operation.state is not SettleState.OPEN:
                        HeldSlice.mark_each(done, operation.state)
                    self.done += done
            except ShardqError as error:
                if isinstance(error, OutcomeUnknown):
                    self._note_unanswered(rest)
                self.failures.add(shard, error)
            else:
                self.failures.pop(shard, None)

    def _sorted_out(
        self, group: Sequence[Selection], fenced: Fenced
    ) -> tuple[Sequence[Selection], Sequence[Selection]]:
        """Return the messages that were settled though others were not, and those still to do; the rest is lost."""
        lost, gone = NamedSpans(*fenced.lost), NamedSpans(*fenced.gone)
        self.by_others += [by for each in group if (by := each.within(gone)).positions]
        taken = self._taken(group, lost, gone)
        self._mark_lost(taken)
        done = [selection.without(away) for selection, away in zip(group, taken, strict=True)]
        rest: list[Selection] = []
        if self.operation.moves:  # of what was not named nothing was moved
            kept, named = done, NamedSpans(*fenced.lost, *fenced.gone)
            done = [selection.within(named) for selection in kept]  # moved by an earlier attempt
            rest = [every.without(each) for every, each in zip(kept, done, strict=True)]
        return [each for each in done if each.positions], [each for each in rest if each.positions]

    def _note_unanswered(self, group: Sequence[Selection]) -> None:
        for selection in group:
            for what in {self.operation.name, self.operation.event}:
                selection.held.note_unanswered(what, selection.positions)

    def _taken(self, group: Sequence[Selection], lost: NamedSpans, gone: NamedSpans) -> list[Selection]:
        """Return which of the messages the store's answer takes from the caller."""
        moved = self.operation.moves and self._were_moved(group, lost)
        return [
            self._lost(selection.within(lost), moved=moved).joined(self._gone(selection.within(gone)))
            for selection in group
        ]

    def _lost(self, selection: Selection, *, moved: bool) -> Selection:
        held = selection.held
        if self.operation.makes_pending and held.returned and held.bundle.group in held.returned:
            # A message that is lost before its lease expires was released with an earlier one of its group.
            selection = selection.expired(self.context.store.now())
        if self.operation.blocks:  # one that blocks its group already, by whichever attempt, counts as done
            found = find_parts(self.context, selection.held.shard, spans_of([selection]))
            return selection.without(
                selection.within(NamedSpans(*(span for span, each in found if each.blocks)))
            )
        explained = self.operation.unanswered_explains_lost or moved
        return selection.without(self._tried(selection)) if explained else selection

    def _gone(self, selection: Selection) -> Selection:
        if self.operation.gone_is_done and self.by_receipt:
            # Within a transaction no attempt was carried out before: somebody else has acked it, beside rows of theirs.
            return selection if self.context.outside else Selection(selection.held, [])
        if self.operation.gone_is_done:
            selection = selection.expired(self.context.store.now())
        explained = self.operation.unanswered_explains_gone
        return selection.without(self._tried(selection)) if explained else selection

    def _tried(self, selection: Selection) -> Selection:
        """Return the messages that an unanswered attempt may have settled so.

        A move is not done by another operation of its name: a release leaves the body as it is.
        """
        what = self.operation.event if self.operation.moves else self.operation.name
        tried = selection.held.unanswered.get(what, set())
        return Selection(selection.held, [position for position in selection.positions if position in tried])

    def _were_moved(self, group: Sequence[Selection], lost: NamedSpans) -> bool:
        """Return whether an unanswered attempt has moved the lost messages: then none is stored in its place."""
        tried = [self._tried(selection.within(lost)) for selection in group]
        found = find_parts(self.context, group[0].held.shard, spans_of(tried))
        return all(piece.state is EntryState.PROCESSED for _, piece in found)

    def _mark_lost(self, taken: Sequence[Selection]) -> None:
        for selection in taken:
            if selection.positions:
                selection.held.mark(selection.in_states(SettleState.OPEN).positions, SettleState.LOST)
                self.lost.append(selection)

    def _note_failed(self, group: Sequence[Selection]) -> None:
        for selection in group:
            self.failed += len(selection.positions)
            if self.operation.state is not SettleState.OPEN:
                selection.held.failed = selection.held.failed.union(selection.positions)


def release_uncounted(context: QueueContext, held: Iterable[HeldSlice]) -> None:
    """Release messages that were not handed out, in their places and without a delivery. Lost ones are ignored.

    Raises the errors of shards that failed.
    """
    release_selected(context, [piece.select() for piece in held])


def release_selected(context: QueueContext, selections: Sequence[Selection]) -> None:
    """Release some of the messages of slices, as :func:`release_uncounted` does."""
    SettleRun(context, RETURN).run(selections).raise_if_failed()
