"""Settling held messages of several shards with one verb.

Each shard is settled by itself, so that a shard which fails does not keep the others from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from shardq.browsing import find_parts
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer, Failures
from shardq.context.unique_keys import release_keys
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.held import Cover, HeldSlice, Named, Selection, SettleState, in_states
from shardq.large.collecting import remove_body
from shardq.settling.telling import NO_STORY, Story, is_told, tell_settled
from shardq.settling.verbs import GIVE_BACK, Verb
from shardq.sharding.shard import Shard
from shardq.storage.abilities import Settle
from shardq.storage.requests import (
    Acknowledge,
    Append,
    EntryState,
    Extend,
    Fenced,
    Forward,
    Release,
    Span,
)

__all__ = [
    "Settling",
    "by_shard",
    "give_back_selected",
    "give_back_unseen",
    "settle",
    "spans_of",
]


def settle(
    context: QueueContext,
    verb: Verb,
    shard: Shard,
    spans: tuple[Span, ...],
    duration: int = 0,
    append: Append | None = None,
) -> Answer[Fenced]:
    """Settle messages of one shard by their spans. This is the only function that asks a store to settle anything.

    ``duration`` is that of a lease or a delay, in microseconds. ``append`` stores messages that are moved in one step;
    without it, moved messages are stored in their new place already.
    """
    if verb.holds:
        request: Settle = Extend(
            shard, spans, duration, shorten=verb.shortens, starts=verb.starts, alone=verb.alone
        )
    elif verb.gives_back:
        request = Release(shard, spans, duration, started=not verb.unseen)
    else:
        keep = verb.keeps and context.settings.history_retention > 0
        request = Acknowledge(shard, spans, keep, moved=verb.moves and append is None)
        if append is not None:
            request = Forward(request, append, in_place=verb.in_place)
    return context.retry.ask(context.joiner.settle, request)


def by_shard(selections: Iterable[Selection]) -> dict[Shard, list[Selection]]:
    """The selections that name any message, together with the others of their shard."""
    groups: dict[Shard, list[Selection]] = {}
    named = [selection for selection in selections if selection.positions]
    for shard, neighbours in groupby(named, attrgetter("held.shard")):
        groups.setdefault(shard, []).extend(neighbours)
    return groups


def spans_of(selections: Sequence[Selection]) -> tuple[Span, ...]:
    """The selected messages as a store's request names them."""
    return tuple([span for selection in selections for span in selection.held.spans(selection.positions)])


Call = Callable[[Shard, Sequence[Selection]], Answer[Fenced]]


class Settling:
    """Settles the messages of each shard, once for all shards first, and then again for those that failed.

    What was done is marked so at once. ``failures`` has the shards in which it could not be done; their messages
    are still open. With ``by_receipt`` it is not known when the leases end. ``story`` is what else is told of them.
    """

    def __init__(
        self,
        context: QueueContext,
        verb: Verb,
        call: Call | None = None,
        *,
        duration: int = 0,
        by_receipt: bool = False,
        story: Story = NO_STORY,
    ) -> None:
        self._context, self._verb, self._by_receipt = context, verb, by_receipt
        self._duration, self._story = duration, story
        # None: by their spans. A method of its own here would be a cycle, which keeps bodies in memory.
        self._call = call
        self.done: list[Selection] = []
        self.lost: list[Selection] = []
        self.failures = Failures()
        self.failed = 0  # messages
        self._by_others: list[Selection] = []  # done, but not by this

    def run(self, selections: Sequence[Selection], last: Collection[Shard] = ()) -> Settling:
        """Settle the messages that are open; the others are lost. The shards in ``last`` come after the others."""
        still_open = in_states(selections, SettleState.OPEN)
        for selection, rest in zip(selections, still_open, strict=True):
            if rest is not selection:
                self._note_barred(selection)
        grants = {each.held.grant for each in still_open if each.held.grant is not None}
        if grants and self._verb.keeps_open:
            still_open = self._covered(still_open, grants)
        groups = by_shard(still_open)
        with self._context.retry.within(0):
            for shard in sorted(groups, key=set(last).__contains__) if last else groups:
                self._settle(shard, groups[shard])
        if self.failures:
            self._repeat(groups)
        self._follow_up(grants)
        return self

    def _follow_up(self, grants: Iterable[Cover]) -> None:
        """Count and tell what was done, and give back or remove what its messages no longer need."""
        done = 0
        keys: list[tuple[str, str]] = []
        large: list[HeldSlice] = []
        for selection in self.done:
            held = selection.held
            done += len(selection.positions)
            if held.unique_key is not None:
                keys.append((held.unique_key, str(held.message_id(0))))
            if held.large is not None:
                large.append(held)
        self._context.counters.add(**{self._verb.counter: done})
        for grant in grants if self.lost or not self._verb.keeps_open else ():
            grant.give_back()
        if keys and self._verb.state is SettleState.FINISHED:
            release_keys(self._context, keys)
        if is_told(self._context, self._verb, self._story):
            tell_settled(self._context, self._verb, self.own, self._duration, self._story)
        if large and self._verb.state is SettleState.FINISHED:
            self._remove_bodies(large)

    def _repeat(self, groups: Mapping[Shard, Sequence[Selection]]) -> None:
        """Settle again the messages of the shards that failed, and note those of which that fails too."""
        with self._context.retry.within():
            for shard in self.failures.retryable if self._context.retry.repeats else ():
                self._settle(shard, groups[shard])
        for shard, group in groups.items():
            if shard in self.failures:
                self._note_failed(in_states(group, SettleState.OPEN))

    def _note_barred(self, selection: Selection) -> None:
        """Messages whose states forbid the verb are lost to it."""
        barred = selection.in_states(*self._verb.barred)
        if barred.positions:
            self.lost.append(barred)

    @property
    def own(self) -> list[Selection]:
        """What was done by this, and not by whoever acked or removed it before."""
        others: dict[HeldSlice, Selection] = {}
        for gone in self._by_others:
            theirs = gone.without(self._tried(gone))
            others[gone.held] = theirs.joined(others.get(gone.held, theirs))
        done = [each.without(others[each.held]) if each.held in others else each for each in self.done]
        return [each for each in done if each.positions]

    def without_failed(self, selections: Sequence[Selection]) -> list[Selection]:
        """Leave out, as failed too, what must not overtake messages of its shard that were not settled."""
        if not self.failures:
            return list(selections)
        left_out = [each for each in selections if each.held.shard in self.failures]
        self._note_failed(in_states(left_out, SettleState.OPEN))
        return [each for each in selections if each.held.shard not in self.failures]

    def add(self, other: Settling) -> None:
        """Take over what another one has done, so that one error tells of both."""
        self.done += other.done
        self.lost += other.lost
        self.failed += other.failed
        self.failures.take_over(other.failures)

    def _remove_bodies(self, finished: Sequence[HeldSlice]) -> None:
        """Remove the large bodies of messages that have left their queue for good, as far as they are known here."""
        verb, context = self._verb, self._context
        if verb.moves or (verb.keeps and context.settings.history_retention > 0):
            return
        for held in finished:
            if held.large is not None:
                remove_body(context, held.large, str(held.message_id(0)))

    @property
    def any_done(self) -> bool:
        """True when some of the messages were settled."""
        return any(selection.positions for selection in self.done)

    @property
    def lost_count(self) -> int:
        """How many messages are lost."""
        return sum(len(selection.positions) for selection in self.lost)

    def _covered(self, selections: Sequence[Selection], grants: Iterable[Cover]) -> list[Selection]:
        """First extend what has to be held with them; where it is lost, so are they. Raises the error of the store.

        What nobody was handed yet is given back, and with it what follows it in its group.
        """
        lost = {grant for grant in grants if not grant.hold(self._duration)}
        uncovered = [selection for selection in selections if selection.held.grant in lost]
        if uncovered and self._verb.starts:
            given = Settling(self._context, GIVE_BACK).run(uncovered)
            if given.failures:
                raise given.failures.error("messages without permits were not given back")
        self._mark_lost(in_states(uncovered, SettleState.OPEN))
        return [selection for selection in selections if selection.held.grant not in lost]

    def _settle_spans(self, shard: Shard, group: Sequence[Selection]) -> Answer[Fenced]:
        return settle(self._context, self._verb, shard, spans_of(group), self._duration)

    def _settle(self, shard: Shard, group: Sequence[Selection]) -> None:
        """Settle the messages of one shard; where it is all or nothing, again without what was lost."""
        rest: Sequence[Selection] = group
        try:
            while rest:
                answer = self._call(shard, rest) if self._call else self._settle_spans(shard, rest)
                if answer.after_unknown:
                    self._note_unanswered(rest)
                if not answer.value.lost and not answer.value.gone:
                    self._mark_done(rest)
                    break
                lost, gone = Named(*answer.value.lost), Named(*answer.value.gone)
                self._by_others += [by for each in rest if (by := each.within(gone)).positions]
                taken = self._taken(rest, lost, gone)
                self._mark_lost(taken)
                kept = [selection.without(away) for selection, away in zip(rest, taken, strict=True)]
                done, rest = kept, ()
                if self._verb.moves:  # of what was not named nothing was moved
                    named = Named(*answer.value.lost, *answer.value.gone)
                    done = [selection.within(named) for selection in kept]  # moved by an earlier attempt
                    others = (every.without(each) for every, each in zip(kept, done, strict=True))
                    rest = [selection for selection in others if selection.positions]
                self._mark_done(done)
        except ShardqError as error:
            if isinstance(error, OutcomeUnknown):
                self._note_unanswered(rest)
            self.failures.add(shard, error)
        else:
            self.failures.forget(shard)

    def _note_unanswered(self, group: Sequence[Selection]) -> None:
        for selection in group:
            for what in {self._verb.name, self._verb.event}:
                selection.held.note_unanswered(what, selection.positions)

    def _taken(self, group: Sequence[Selection], lost: Named, gone: Named) -> list[Selection]:
        """Which of the messages the store's answer takes from the caller."""
        moved = self._verb.moves and self._were_moved(group, lost)
        return [
            self._lost(selection.within(lost), moved=moved).joined(self._gone(selection.within(gone)))
            for selection in group
        ]

    def _lost(self, selection: Selection, *, moved: bool) -> Selection:
        if self._verb.gives_back and selection.held.shard.is_grouped:
            # Of what was given back before its lease was over an earlier message of its group was.
            selection = selection.over(self._context.store.now())
        explained = self._verb.unanswered_explains_lost or moved
        return selection.without(self._tried(selection)) if explained else selection

    def _gone(self, selection: Selection) -> Selection:
        if self._verb.gone_is_done and self._by_receipt:
            # Within a transaction no attempt was carried out before: somebody else has acked it, beside rows of theirs.
            return selection if self._context.joined else Selection(selection.held, [])
        if self._verb.gone_is_done:
            selection = selection.over(self._context.store.now())
        explained = self._verb.unanswered_explains_gone
        return selection.without(self._tried(selection)) if explained else selection

    def _tried(self, selection: Selection) -> Selection:
        """Those of them to which an attempt that was not answered may have done it.

        A move is not done by another verb of its name: a release leaves the body as it is.
        """
        what = self._verb.event if self._verb.moves else self._verb.name
        tried = selection.held.unanswered.get(what, set())
        return Selection(selection.held, [position for position in selection.positions if position in tried])

    def _were_moved(self, group: Sequence[Selection], lost: Named) -> bool:
        """True when an unanswered attempt has moved what is lost now: then nothing of it is stored where it was."""
        tried = [self._tried(selection.within(lost)) for selection in group]
        found = find_parts(self._context, group[0].held.shard, spans_of(tried))
        return all(piece.state is EntryState.PROCESSED for _, piece in found)

    def _mark_lost(self, taken: Sequence[Selection]) -> None:
        for selection in taken:
            if selection.positions:
                selection.held.mark(selection.in_states(SettleState.OPEN).positions, SettleState.LOST)
                self.lost.append(selection)

    def _mark_done(self, rest: Sequence[Selection]) -> None:
        done = [selection for selection in rest if selection.positions]
        if self._verb.state is not SettleState.OPEN:
            for selection in done:
                selection.held.mark(selection.positions, self._verb.state)
        self.done += done

    def _note_failed(self, group: Sequence[Selection]) -> None:
        for selection in group:
            self.failed += len(selection.positions)
            if self._verb.state is not SettleState.OPEN:
                selection.held.failed = selection.held.failed.union(selection.positions)


def give_back_unseen(context: QueueContext, held: Iterable[HeldSlice]) -> None:
    """Give back messages that were handed to nobody, in their places and without a delivery. Lost ones are ignored.

    Raises the errors of shards that failed.
    """
    give_back_selected(context, [piece.select() for piece in held])


def give_back_selected(context: QueueContext, selections: Sequence[Selection]) -> None:
    """Like :func:`give_back_unseen`, for some of the messages of slices."""
    settling = Settling(context, GIVE_BACK).run(selections)
    if settling.failures:
        raise settling.failures.error(f"messages of queue {context.name!r} were not given back")
