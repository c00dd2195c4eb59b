"""One operation on held messages of several shards: each shard for itself, so that one costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shardq.context.failures import Failures
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.held import Fate, Pick
from shardq.settling.picks import by_shard
from shardq.settling.verbs import Verb
from shardq.sharding.shard import Shard
from shardq.storage.requests import EntryState, Fenced, Span

__all__ = ["Call", "Settling"]

Call = Callable[[Shard, Sequence[Pick]], Answer[Fenced]]


class Settling:
    """Calls the store for each shard, once for all of them first, and then again for those that failed.

    What was done is marked so at once. ``failures`` has the shards in which it could not be done; their messages
    are still open. With ``by_receipt`` it is not known when the leases end.
    """

    def __init__(self, context: QueueContext, verb: Verb, call: Call, *, by_receipt: bool) -> None:
        self._context, self._verb, self._call, self._by_receipt = context, verb, call, by_receipt
        self.done: list[Pick] = []
        self.lost: list[Pick] = []
        self.failures = Failures()
        self.failed = 0  # messages

    def run(self, picks: Sequence[Pick], last: Iterable[Shard] = ()) -> None:
        """Settle what is open; what the operation cannot be done to is lost. ``last`` are tried after the others."""
        barred = [pick.with_fates(*self._verb.barred) for pick in picks]
        self.lost += [pick for pick in barred if pick.positions]
        groups = by_shard(pick.with_fates(Fate.OPEN) for pick in picks)
        late = set(last)
        with self._context.retry.within(0):
            for shard in sorted(groups, key=late.__contains__):
                self._settle(shard, groups[shard])
        with self._context.retry.within():
            for shard in self.failures.passing if self._context.retry.repeats else ():
                self._settle(shard, groups[shard])
        for shard, group in groups.items():
            if shard in self.failures:
                self._note_failed([pick.with_fates(Fate.OPEN) for pick in group])
        done = sum(len(pick.positions) for pick in self.done)
        self._context.counters.add(**{self._verb.counter: done})

    def _settle(self, shard: Shard, group: Sequence[Pick]) -> None:
        """Settle the messages of one shard; where it is all or nothing, again without what was lost."""
        rest: Sequence[Pick] = group
        try:
            while rest:
                answer = self._call(shard, rest)
                if answer.after_unknown:
                    self._note_unanswered(rest)
                taken = self._taken(rest, answer.value)
                kept = (pick.without(away) for pick, away in zip(rest, taken, strict=True))
                rest = [pick for pick in kept if pick.positions]
                self._mark_lost(taken)
                if not self._verb.moves or not any(pick.positions for pick in taken):
                    self._mark_done(rest)
                    break
        except ShardqError as error:
            if isinstance(error, OutcomeUnknown):
                self._note_unanswered(rest)
            self.failures.add(shard, error)
        else:
            self.failures.forget(shard)

    def _note_unanswered(self, group: Sequence[Pick]) -> None:
        for pick in group:
            pick.held.unanswered.add(self._verb.name)

    def _taken(self, group: Sequence[Pick], answer: Fenced) -> list[Pick]:
        """Which of the messages the store's answer takes from the caller."""
        lost, gone = answer.lost, answer.gone
        if not lost and not gone:
            return [Pick(pick.held, []) for pick in group]
        moved = self._verb.moves and self._were_moved(group, lost)
        return [pick.within((*self._lost(pick, lost, moved), *self._gone(pick, gone))) for pick in group]

    def _lost(self, pick: Pick, lost: Sequence[Span], moved: bool) -> Sequence[Span]:
        explained = self._verb.unanswered_explains_lost or moved
        return () if explained and self._verb.name in pick.held.unanswered else lost

    def _gone(self, pick: Pick, gone: Sequence[Span]) -> Sequence[Span]:
        if self._verb.unanswered_explains_gone and self._verb.name in pick.held.unanswered:
            return ()
        over = not self._by_receipt and self._context.store.now() > pick.held.lease_until
        return gone if over or not self._verb.gone_is_done else ()

    def _were_moved(self, group: Sequence[Pick], lost: Sequence[Span]) -> bool:
        """True when an unanswered attempt has moved what is lost now: then nothing of it is stored where it was."""
        tried = [pick for pick in group if self._verb.name in pick.held.unanswered]
        return not any(
            self._is_stored(pick, place) for pick in tried for place in pick.within(lost).positions
        )

    def _is_stored(self, pick: Pick, position: int) -> bool:
        place = pick.held.message_id(position)
        find = self._context.store.find
        found = self._context.retry(find, place.shard, place.bundle_id, place.position)
        return found is not None and found.state is not EntryState.PROCESSED

    def _mark_lost(self, taken: Sequence[Pick]) -> None:
        for pick in taken:
            if pick.positions:
                pick.held.mark(pick.with_fates(Fate.OPEN).positions, Fate.LOST)
                self.lost.append(pick)

    def _mark_done(self, rest: Sequence[Pick]) -> None:
        for pick in rest:
            if pick.positions:
                if self._verb.fate is not Fate.OPEN:
                    pick.held.mark(pick.positions, self._verb.fate)
                self.done.append(pick)

    def _note_failed(self, group: Sequence[Pick]) -> None:
        for pick in group:
            self.failed += len(pick.positions)
            if self._verb.fate is not Fate.OPEN:
                pick.held.failed = pick.held.failed.union(pick.positions)
