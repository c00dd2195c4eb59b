"""A state machine that tries histories of calls on a store and on a dict, and compares the two; and its contract."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from shardq.base.shard import Shard
from shardq.storage.requests import (
    BLOCKED,
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Extend,
    Fenced,
    Finish,
    Forward,
    Release,
    Span,
    Sweep,
)
from shardq.testing.harness import StoreHarness
from shardq.testing.messages import of_slices, of_spans
from shardq.testing.store_agreement import PastClaim, StoreAgreement
from shardq.testing.store_model import Verdict

__all__ = ["ModelContract", "StoreStateMachine", "state_machine_for"]

PICK = st.integers(0, 999)  # picks from a list that grows, by the remainder
CLIENT = st.integers(0, 1)
SHARD = st.integers(0, 5)
GROUP = st.sampled_from(["a", "b"])


class StoreStateMachine(StoreAgreement):
    """Two clients of a store, used in any order on two shards of one queue, and on one of groups.

    Where the store's time is real, every lease and delay is an hour and no time passes. Where it is manual, they are
    seconds and time is moved.
    """

    # -- appending

    @rule(
        where=SHARD,
        count=st.integers(1, 6),
        priority=st.integers(0, 2),
        delay=st.sampled_from([0, 0, 7, 30]),
        group=GROUP,
    )
    def append(self, where: int, count: int, priority: int, delay: int, group: str) -> None:
        """Send a bundle."""
        self._pass()
        shard = self.shards[where % len(self.shards)]
        self._append(shard, self._made(shard, count, group, priority=priority, delay=self._seconds(delay)))

    def _made(self, shard: Shard, count: int, group: str, *, priority: int, delay: float = 0) -> Bundle:
        """Make a bundle for a shard; only in one of groups does it have a group."""
        group = group if shard.is_grouped else ""
        return self.make(count, priority=priority, delay=delay, group=group)

    @precondition(lambda self: any(model.bundles for model in self.models.values()))
    @rule(pick=PICK, client=CLIENT)
    def append_again(self, pick: int, client: int) -> None:
        """Repeat an append of the past, whatever has become of its messages."""
        sent = [(shard, bundle) for shard, model in self.models.items() for bundle in model.bundles.values()]
        shard, bundle = sent[pick % len(sent)]
        self.store = self.clients[client]
        self._append(shard, bundle)

    def _append(self, shard: Shard, bundle: Bundle) -> None:
        self.store.append(Append(shard, (bundle,)))
        self.models[shard].append(bundle)

    # -- claiming

    @rule(
        where=SHARD,
        client=CLIENT,
        limit=st.integers(1, 9),
        lease=st.sampled_from([5, 20]),
        started=st.booleans(),
        finish=st.sampled_from([False, False, False, True]),  # what is finished cannot be lost or released
    )
    def claim(self, where: int, client: int, limit: int, lease: int, started: bool, finish: bool) -> None:
        """Claim with a new token."""
        self.store = self.clients[client]
        self._claim(self._busy(where), os.urandom(16), limit, lease, started, finish)

    @precondition(lambda self: any(past.repeatable for past in self.claims))
    @rule(pick=PICK, client=CLIENT, limit=st.integers(1, 9), lease=st.sampled_from([5, 20]))
    def claim_again(self, pick: int, client: int, limit: int, lease: int) -> None:
        """Repeat a claim of the past."""
        claims = [past for past in self.claims if past.repeatable]
        past = claims[pick % len(claims)]
        self.store = self.clients[client]
        self._claim(past.shard, past.token, limit, lease, past.started)

    def _claim(
        self, shard: Shard, token: bytes, limit: int, lease: int, started: bool, finish: bool = False
    ) -> None:
        self._pass()
        model = self.models[shard]
        repeated = bool(model.held_by(token))
        request = Claim(shard, token, limit, self._duration(lease), started=started)
        claimed = self._ask(msgspec.structs.replace(request, finish=Finish() if finish else None))
        taken = model.claim(
            token,
            limit,
            now=self._moment(),
            until=claimed.lease_until,
            started=started,
            answer=of_slices(claimed.slices),
        )
        expected = [(each.key, each.deliveries + each.unstarted) for each in taken]
        actual = [
            ((each.bundle.id, each.first + i), each.deliveries)
            for each in claimed.slices
            for i in range(each.count)
        ]
        if repeated:  # which order a repeated claim has is not promised
            expected, actual = sorted(expected), sorted(actual)
        assert actual == expected, f"claimed {actual}, expected {expected}"
        assert all(each.bundle == model.bundles[each.bundle.id] for each in claimed.slices), "another bundle"
        if claimed.slices:
            assert self.harness.real_time or claimed.lease_until == self._moment() + self._duration(lease)
            spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)
            done = {
                (each.bundle.id, each.first + i)
                for each in claimed.slices
                if each.finished
                for i in range(each.count)
            }
            model.finish([each for each in taken if each.key in done])
            self.claims.append(PastClaim(shard, token, spans, started, repeatable=not done))

    def _busy(self, where: int) -> Shard:
        """Choose a shard, one with messages if there is any."""
        busy = [shard for shard, model in self.models.items() if model.messages] or self.shards
        return busy[where % len(busy)]

    # -- finishing, extending, releasing

    @precondition(lambda self: self.claims)
    @rule(
        pick=PICK,
        cut=PICK,
        client=CLIENT,
        keep=st.sampled_from([False, False, False, True]),
        moved=st.sampled_from([False, False, True]),
    )
    def acknowledge(self, pick: int, cut: int, client: int, keep: bool, moved: bool) -> None:
        """Finish a part of a claim of the past."""
        shard, spans, verdict = self._past(pick, cut, client)
        self._agree(self.store.acknowledge(Acknowledge(shard, spans, keep, moved)), verdict)
        now = self._moment()
        self.models[shard].finish(
            verdict.held, kept_at=now if keep else None, moved_at=now if moved else None
        )

    @precondition(lambda self: self.claims)
    @rule(
        pick=PICK,
        cut=PICK,
        client=CLIENT,
        lease=st.sampled_from([3, 25]),
        starts=st.booleans(),
        blocks=st.sampled_from([False, False, True]),
    )
    def extend(self, pick: int, cut: int, client: int, lease: int, starts: bool, blocks: bool) -> None:
        """Extend a part of a claim of the past, or let it block its groups."""
        self._pass()
        shard, spans, verdict = self._past(pick, cut, client)
        blocks = (blocks and shard.is_grouped) or spans[0].token == BLOCKED
        request = Extend(shard, spans, self._duration(lease), starts=starts, blocks=blocks)
        self._agree(self.store.extend(request), verdict)
        now = self._moment()
        self.models[shard].extend(verdict.held, request.until(now), now=now, starts=starts, blocks=blocks)

    @precondition(lambda self: self.claims)
    @rule(pick=PICK, cut=PICK, client=CLIENT, delay=st.sampled_from([0, 0, 10]), started=st.booleans())
    def release(self, pick: int, cut: int, client: int, delay: int, started: bool) -> None:
        """Release a part of a claim of the past."""
        self._pass()
        shard, spans, verdict = self._past(pick, cut, client)
        self._agree(self.store.release(Release(shard, spans, self._duration(delay), started)), verdict)
        now = self._moment()
        self.models[shard].release(verdict.held, now + self._duration(delay), now=now, started=started)

    @precondition(lambda self: self.claims)
    @rule(pick=PICK, cut=PICK, to=SHARD, count=st.integers(1, 4), priority=st.integers(0, 2), group=GROUP)
    def forward(self, pick: int, cut: int, to: int, count: int, priority: int, group: str) -> None:
        """Forward a part of a claim of the past, to its own shard or to another one."""
        self._pass()
        shard, spans, verdict = self._past(pick, cut, to % 2)
        target = self.shards[to % len(self.shards)]
        target = target if self.store.capabilities.forward_across_shards else shard
        bundle = self._made(target, count, group, priority=priority)
        request = Forward(Acknowledge(shard, spans), Append(target, (bundle,)))
        self._agree(self.store.forward(request), verdict)
        if not verdict.lost and not verdict.gone:
            self.models[shard].finish(verdict.held, moved_at=self._moment())
            self.models[target].append(bundle)

    def _past(self, pick: int, cut: int, client: int) -> tuple[Shard, tuple[Span, ...], Verdict]:
        """Choose all or a part of a claim of the past, mostly of one that still holds, or of what blocks of it."""
        live = [past for past in self.claims if self.models[past.shard].held_by(past.token)]
        claims = live if live and pick % 4 else self.claims
        past = claims[pick % len(claims)]
        self.store = self.clients[client]
        spans = past.spans
        if cut % 4:
            span = spans[cut % len(spans)]
            first = cut % span.count
            count = 1 + (cut // 7) % (span.count - first)
            spans = (Span(span.bundle_id, span.first + first, count, span.token),)
        if pick % 3 == 2 and self.models[past.shard].held_by(BLOCKED):
            spans = tuple(msgspec.structs.replace(span, token=BLOCKED) for span in spans)
        return past.shard, spans, self.models[past.shard].judge(spans, self._moment())

    def _agree(self, fenced: Fenced, verdict: Verdict) -> None:
        assert sorted(of_spans(fenced.lost)) == sorted(verdict.lost), "other messages are lost than should be"
        assert sorted(of_spans(fenced.gone)) == sorted(verdict.gone), "other messages are gone than should be"

    # -- removing, time

    @precondition(lambda self: any(model.bundles for model in self.models.values()))
    @rule(pick=PICK, position=st.integers(0, 6), client=CLIENT)
    def remove(self, pick: int, position: int, client: int) -> None:
        """Remove a message, there or not."""
        sent = [(shard, bundle_id) for shard, model in self.models.items() for bundle_id in model.bundles]
        shard, bundle_id = sent[pick % len(sent)]
        removed = self.clients[client].remove(shard, bundle_id, position)
        assert removed == self.models[shard].remove((bundle_id, position)), (
            "removed what was not there, or not"
        )

    @rule(where=SHARD, client=CLIENT, dice=st.integers(0, 4))
    def purge(self, where: int, client: int, dice: int) -> None:
        """Purge a shard, now and then."""
        if dice == 3:
            shard = self._busy(where)
            model = self.models[shard]
            purged = self.clients[client].purge(shard)
            assert purged == len(model.messages), f"purged {purged} of {len(model.messages)} messages"
            model.messages.clear()

    @rule(seconds=st.sampled_from([1, 4, 10, 40]))
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        if not self.harness.real_time:
            self.harness.advance(seconds)

    @rule(client=CLIENT, age=st.sampled_from([5, 30]))
    def sweep(self, client: int, age: int) -> None:
        """Sweep the queue."""
        before = self._moment() - self._duration(age)
        while self.clients[client].sweep(Sweep(self.queue, before)):
            pass
        for model in self.models.values():
            model.forget_history(before)


def state_machine_for(harness: Callable[[], StoreHarness]) -> type[StoreStateMachine]:
    """Return the state machine for a store; the function gives the harness, once.

    Run it with ``run_state_machine_as_test``, or give its ``TestCase`` to pytest.
    """
    opened = harness()

    class StateMachine(StoreStateMachine):
        """The state machine of one store."""

        harness = opened

    return StateMachine


class ModelContract:
    """The state machine, run on the store."""

    def test_a_store_agrees_with_the_model(self, harness: StoreHarness) -> None:
        run_state_machine_as_test(
            state_machine_for(lambda: harness),
            settings=settings(
                max_examples=harness.examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
