"""Threads that settle at the same time go together, and each is told what became of its own messages."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pytest

import shardq
from shardq.base.shard import Shard
from shardq.base.waits import ThreadWait
from shardq.core.context.settle_group_commit import SettleGroupCommit, _disjoint, _few, _own_part, _spans
from shardq.storage.abilities import Locked, Settle
from shardq.storage.opening import open_store
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Capabilities,
    Claim,
    Extend,
    Fenced,
    Forward,
    Peek,
    QueueRecord,
    Release,
    Span,
)
from shardq.storage.store import Store
from shardq.testing import ManualClock, WrappedStore
from shardq.testing.messages import BundleFactory
from shardq.testing.seam import joined_callers
from tests.forking import forked
from tests.function_calls import function_calls

PATIENCE = 20.0  # seconds until something counts as hanging
SHARD, OTHER = Shard("q", 0, 0), Shard("q", 0, 1)
VERBS = ("acknowledge", "release", "extend")


class Gated(WrappedStore):
    """The first settling waits for a gate; of each the spans are noted, and it may be made to fail."""

    def __init__(self, inner: Store, *, across: bool = True) -> None:
        super().__init__(inner)
        self.across = across
        self.entered, self.gate = threading.Event(), threading.Event()
        self.asked: list[list[Span]] = []
        self.before: Callable[[list[Span]], None] = lambda _: None
        self.after: Callable[[list[Span]], None] = lambda _: None

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, settle_across_shards=self.across)

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method not in (*VERBS, "forward", "settle"):
            return do(*args, **kwargs)
        requests = args[0] if method == "settle" else args
        spans = [span for request in requests for span in _spans(request)]
        self.asked.append(spans)
        if len(self.asked) == 1:
            self.entered.set()
            assert self.gate.wait(PATIENCE)
            return do(*args, **kwargs)
        self.before(spans)
        answer = do(*args, **kwargs)
        self.after(spans)
        return answer


class Bench:
    """A joiner before a gated store, and messages that a claim holds."""

    def __init__(self, url: str, clock: ManualClock, *, across: bool) -> None:
        self.clock = clock
        self.gated = Gated(open_store(url, clock), across=across)
        self.settle_commit = SettleGroupCommit(self.gated)
        self.gated.create_queue(QueueRecord("q", b"", 1))
        self.make = BundleFactory(self.gated.now)
        self.threads = ThreadPoolExecutor(16)
        self.first = self.held()

    def held(self, count: int = 1, shard: Shard = SHARD) -> Span:
        """Messages under a token of their own."""
        bundle = self.make(count)
        self.gated.append(Append(shard, (bundle,)))
        token = os.urandom(16)
        assert self.gated.claim(Claim(shard, token, count, 30_000_000)).slices
        return Span(bundle.id, 0, count, token)

    def lost(self) -> Span:
        """A message whose token is not its holder's."""
        held = self.held()
        return Span(held.bundle_id, 0, 1, os.urandom(16))

    def gone(self) -> Span:
        """A message that is not stored any more."""
        held = self.held()
        self.gated.inner.acknowledge(Acknowledge(SHARD, (held,)))
        return held

    def settle(self, verb: str, *spans: Span, shard: Shard = SHARD) -> Fenced:
        requests: dict[str, Callable[[], Settle]] = {
            "acknowledge": lambda: Acknowledge(shard, spans),
            "release": lambda: Release(shard, spans),
            "extend": lambda: Extend(shard, spans, 60_000_000),
        }
        return self.settle_commit.settle(requests[verb]())

    def forward(self, span: Span, new: Bundle, to: Shard = OTHER) -> Fenced:
        return self.settle_commit.settle(Forward(Acknowledge(SHARD, (span,)), Append(to, (new,))))

    def behind_another(self, verb: str, calls: Sequence[Callable[[], Fenced]]) -> list[Future[Fenced]]:
        """The calls, each in a thread, all of which wait while a first request of that verb is under way."""
        leader = self.threads.submit(self.settle, verb, self.first)
        assert self.gated.entered.wait(PATIENCE)
        futures = []
        for call in calls:
            futures.append(self.threads.submit(call))
            self.wait_for(len(futures))
        self.gated.gate.set()
        assert leader.result(PATIENCE) == Fenced()
        return futures

    def wait_for(self, count: int) -> None:
        """Until so many callers wait, or have been through."""
        until = time.monotonic() + PATIENCE
        while self.settle_commit.group_commit.waiting() < count:
            assert time.monotonic() < until
            time.sleep(0.001)


@pytest.fixture(params=["by shard", "across shards"])
def bench(url: str, clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(url, clock, across=request.param == "across shards")
    yield bench
    bench.gated.gate.set()
    bench.threads.shutdown()
    bench.gated.close()


def outcomes(futures: Sequence[Future[Any]]) -> list[Any]:
    """What each was told: its answer, or the kind of its error."""
    return [
        type(error) if (error := future.exception(PATIENCE)) is not None else future.result()
        for future in futures
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next(bench: Bench, verb: str) -> None:
    spans = [bench.held() for _ in range(8)]
    futures = bench.behind_another(verb, [partial(bench.settle, verb, span) for span in spans])
    assert outcomes(futures) == [Fenced()] * 8
    assert [len(spans) for spans in bench.gated.asked] == [1, 8]


@pytest.mark.parametrize("verb", VERBS)
def test_each_of_those_who_go_together_is_told_of_its_own_messages_only(bench: Bench, verb: str) -> None:
    held, lost, gone, several = bench.held(), bench.lost(), bench.gone(), bench.held(5)
    spans = [held, lost, gone, several]
    futures = bench.behind_another(verb, [partial(bench.settle, verb, span) for span in spans])
    assert outcomes(futures) == [Fenced(), Fenced(lost=(lost,)), Fenced(gone=(gone,)), Fenced()]
    assert len(bench.gated.asked) == 2


@pytest.mark.parametrize("verb", VERBS)
def test_neighbouring_messages_of_a_bundle_go_together_and_are_told_apart(bench: Bench, verb: str) -> None:
    whole = bench.held(6)
    bench.gated.inner.acknowledge(
        Acknowledge(SHARD, (Span(whole.bundle_id, 1, 3, whole.token),))
    )  # messages 1, 2 and 3 are gone
    parts = [Span(whole.bundle_id, first, 2, whole.token) for first in (0, 2, 4)]
    futures = bench.behind_another(verb, [partial(bench.settle, verb, span) for span in parts])
    gone = [Span(whole.bundle_id, 1, 1, whole.token), Span(whole.bundle_id, 2, 2, whole.token)]
    assert outcomes(futures) == [Fenced(gone=(gone[0],)), Fenced(gone=(gone[1],)), Fenced()]
    assert len(bench.gated.asked) == 2


def test_who_acks_a_message_that_a_neighbour_acks_is_told_that_it_is_gone(bench: Bench) -> None:
    held = bench.held(3)
    part = Span(held.bundle_id, 1, 1, held.token)
    futures = bench.behind_another(
        "acknowledge", [partial(bench.settle, "acknowledge", span) for span in (held, part)]
    )
    assert outcomes(futures) == [Fenced(), Fenced(gone=(part,))]
    assert len(bench.gated.asked) == (2 if bench.gated.across else 3)


@pytest.mark.parametrize("bench", ["by shard"], indirect=True)
def test_other_shards_verbs_and_leases_go_by_themselves(bench: Bench) -> None:
    held, other, elsewhere = bench.held(), bench.held(), bench.held(shard=OTHER)
    leader = bench.threads.submit(bench.settle, "acknowledge", bench.first)
    assert bench.gated.entered.wait(PATIENCE)
    assert bench.settle("acknowledge", elsewhere, shard=OTHER) == Fenced()
    assert bench.settle("extend", held) == Fenced()
    assert bench.settle("release", held) == Fenced()
    assert bench.settle_commit.settle(Acknowledge(SHARD, (other,), keep=True)) == Fenced()
    assert not leader.done()
    bench.gated.gate.set()
    assert leader.result(PATIENCE) == Fenced()


@pytest.mark.parametrize("bench", ["across shards"], indirect=True)
def test_where_the_store_settles_across_shards_every_shard_and_verb_goes_with_the_others(
    bench: Bench,
) -> None:
    held, moved, lost, elsewhere = bench.held(), bench.held(), bench.lost(), bench.held(shard=OTHER)
    new, never = bench.make(), bench.make()
    calls = [
        partial(bench.settle, "release", held),
        partial(bench.settle, "acknowledge", elsewhere, shard=OTHER),
        partial(bench.settle, "extend", lost),
        partial(bench.forward, moved, new),
        partial(bench.forward, lost, never),
        partial(bench.forward, moved, never),
    ]
    futures = bench.behind_another("acknowledge", calls)
    told = [Fenced(), Fenced(), Fenced(lost=(lost,)), Fenced(), Fenced(lost=(lost,)), Fenced(lost=(moved,))]
    assert outcomes(futures) == told
    assert len(bench.gated.asked) == 2
    stored = {each.bundle.id for each in bench.gated.inner.peek(Peek(OTHER, 100)).slices}
    assert stored == {new.id}


@pytest.mark.parametrize("bench", ["across shards"], indirect=True)
def test_a_forward_to_a_queue_that_is_gone_fails_alone(bench: Bench) -> None:
    held, moved, new = bench.held(), bench.held(), bench.make()
    calls = [
        partial(bench.settle, "acknowledge", held),
        partial(bench.forward, moved, new, to=Shard("never", 0, 0)),
        partial(bench.settle, "release", bench.held()),
    ]
    assert outcomes(bench.behind_another("acknowledge", calls)) == [Fenced(), shardq.QueueNotFound, Fenced()]
    assert bench.settle("release", moved) == Fenced()
    assert bench.settle("acknowledge", held) == Fenced(gone=(held,))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", [shardq.StoreUnavailable, shardq.OutcomeUnknown])
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_passing_error_is_told_to_everybody_as_an_error_of_his_own(
    bench: Bench, verb: str, kind: type[shardq.ShardqError], carried_out: bool
) -> None:
    def fail(_: object) -> None:
        raise kind("the plan")

    if carried_out:
        bench.gated.after = fail
    else:
        bench.gated.before = fail
    spans = [bench.held() for _ in range(3)]
    futures = bench.behind_another(verb, [partial(bench.settle, verb, span) for span in spans])
    errors = [future.exception(PATIENCE) for future in futures]
    assert [type(error) for error in errors] == [kind] * 3
    assert all(isinstance(error, shardq.ShardqError) and error.retryable for error in errors)
    assert len(set(map(id, errors))) == 3
    bench.gated.before = bench.gated.after = lambda _: None
    done = carried_out and verb == "acknowledge"
    assert [bench.settle(verb, span) for span in spans] == [
        Fenced(gone=(span,))
        if done
        else Fenced(lost=(span,))
        if carried_out and verb == "release"
        else Fenced()
        for span in spans
    ]


@pytest.mark.parametrize("error", [shardq.SchemaMismatch("no"), ValueError("no"), Locked("by another")])
def test_what_is_refused_to_one_is_not_refused_to_its_neighbours(bench: Bench, error: Exception) -> None:
    refused, held = bench.held(), [bench.held(), bench.held()]

    def refuse(spans: list[Span]) -> None:
        if refused in spans:
            raise error

    bench.gated.before = refuse
    spans = [held[0], refused, held[1]]
    futures = bench.behind_another(
        "acknowledge", [partial(bench.settle, "acknowledge", span) for span in spans]
    )
    assert outcomes(futures) == [Fenced(), type(error), Fenced()]


def test_who_is_led_by_a_thread_that_is_interrupted_may_repeat(bench: Bench) -> None:
    def interrupt(_: object) -> None:
        bench.gated.before = lambda _: None
        raise KeyboardInterrupt

    bench.gated.before = interrupt
    spans = [bench.held() for _ in range(3)]
    futures = bench.behind_another(
        "acknowledge", [partial(bench.settle, "acknowledge", span) for span in spans]
    )
    told = outcomes(futures)
    assert sorted(kind.__name__ for kind in told) == ["KeyboardInterrupt", "OutcomeUnknown", "OutcomeUnknown"]
    assert [bench.settle("acknowledge", span) for span in spans] == [Fenced()] * 3


def test_a_caller_that_is_interrupted_while_it_waits_costs_the_others_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(ThreadWait):
        def wait(self, seconds: float = -1) -> None:
            raise KeyboardInterrupt

    leader = bench.threads.submit(bench.settle, "acknowledge", bench.first)
    assert bench.gated.entered.wait(PATIENCE)
    with monkeypatch.context() as patched:
        patched.setattr("shardq.core.context.group_commit.ThreadWait", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.settle("acknowledge", bench.held())
    assert bench.settle_commit.group_commit.waiting() == 0
    bench.gated.gate.set()
    assert leader.result(PATIENCE) == Fenced()
    assert bench.settle("acknowledge", bench.held()) == Fenced()


@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_handler_that_settles_while_its_thread_does_waits_for_nobody(
    bench: Bench, verb: str
) -> None:
    own, told = bench.held(), list[Fenced]()

    def handle(_: object) -> None:
        bench.gated.before = lambda _: None
        told.append(bench.settle(verb, own))

    bench.gated.before = handle
    spans = [bench.held() for _ in range(3)]
    futures = bench.behind_another(verb, [partial(bench.settle, verb, span) for span in spans])
    assert outcomes(futures) == [Fenced()] * 3
    assert told == [Fenced()]


def test_more_than_two_thousand_parts_do_not_go_together() -> None:
    some, many = (
        Acknowledge(SHARD, tuple(Span(b"b" * 16, position, 1, token) for position in range(count)))
        for token, count in ((b"s" * 16, 999), (b"m" * 16, 3_000))
    )
    assert _few([some, some, some, some]) == 2
    assert _few([many, some]) == _few([some, many]) == 1


def test_a_child_settles_while_a_thread_of_its_parent_does(bench: Bench) -> None:
    held = bench.held()
    leader = bench.threads.submit(bench.settle, "acknowledge", bench.first)
    assert bench.gated.entered.wait(PATIENCE)
    assert forked(lambda: str(bench.settle("acknowledge", held) == Fenced())) == "True"
    bench.gated.gate.set()
    assert leader.result(PATIENCE) == Fenced()


class Refuses(shardq.Hooks):
    """Refuses to ack one body."""

    def before_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
        if any(message.body == b"refused" for message in messages):
            raise ValueError(queue)


def messages_behind_another(
    url: str, clock: ManualClock, bodies: Sequence[bytes], hooks: shardq.Hooks | None = None
) -> tuple[shardq.Client, Gated, list[shardq.Message]]:
    gated = Gated(open_store(url, clock))
    client = shardq.Client(gated, hooks=hooks, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1, visibility_timeout=30)
    with queue.producer() as producer:
        for body in bodies:
            producer.send(body)
    return client, gated, list(queue.consumer().receive(len(bodies)))


def ack_together(client: shardq.Client, gated: Gated, messages: Sequence[shardq.Message]) -> list[Any]:
    """What each is told when the first ack is under way while the others come."""
    threads = ThreadPoolExecutor(len(messages))
    futures = [threads.submit(messages[0].ack)]
    assert gated.entered.wait(PATIENCE)
    futures += [threads.submit(message.ack) for message in messages[1:]]
    until = time.monotonic() + PATIENCE
    while joined_callers(client) + sum(future.done() for future in futures) < len(futures) - 1:
        assert time.monotonic() < until
        time.sleep(0.001)
    gated.gate.set()
    threads.shutdown()
    return outcomes(futures)


def test_a_hook_that_refuses_one_ack_refuses_no_other(url: str, clock: ManualClock) -> None:
    bodies = [b"0", b"1", b"refused", b"3"]
    client, gated, messages = messages_behind_another(url, clock, bodies, Refuses())
    assert ack_together(client, gated, messages) == [None, None, ValueError, None]
    assert client.queue("q").counts().in_flight == 1
    client.close()


def test_a_lease_that_one_has_lost_is_no_other_ones_loss(url: str, clock: ManualClock) -> None:
    client, gated, messages = messages_behind_another(url, clock, [b"0", b"1", b"2", b"3"])
    clock.advance(60)
    with shardq.connect(url, clock=clock) as other:
        (thief,) = other.queue("q").consumer().receive(1)
    lost = [message.id == thief.id for message in messages]
    told = ack_together(client, gated, [messages[2], messages[0], messages[1], messages[3]])
    expected = [lost[2], lost[0], lost[1], lost[3]]
    assert told == [shardq.LeaseLost if each else None for each in expected]
    client.close()


def test_who_waits_when_the_client_is_closed_is_told_so(url: str, clock: ManualClock) -> None:
    client, gated, messages = messages_behind_another(url, clock, [b"0", b"1", b"2"])
    gated.before = lambda _: pytest.fail("the store was asked")
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(messages[0].ack)]
        assert gated.entered.wait(PATIENCE)
        futures += [threads.submit(message.ack) for message in messages[1:]]
        until = time.monotonic() + PATIENCE
        while joined_callers(client) < 2:
            assert time.monotonic() < until
            time.sleep(0.001)
        client.close()
        gated.gate.set()
        assert outcomes(futures) == [None, shardq.Closed, shardq.Closed]


@pytest.mark.parametrize("told", ["nothing", "all lost"])
def test_joining_requests_for_many_parts_costs_as_much_as_there_are_not_their_square(told: str) -> None:
    def calls(count: int) -> int:
        """How many functions are called for two requests that name every second message of a bundle in turn."""
        spans = [Span(b"b" * 16, position, 1, b"t" * 16) for position in range(0, 4 * count, 2)]
        requests = [Acknowledge(SHARD, tuple(spans[::2])), Acknowledge(SHARD, tuple(spans[1::2]))]
        lost = Fenced(lost=tuple(spans) if told == "all lost" else ())
        done: list[object] = []
        counted = function_calls(
            lambda: done.extend([_disjoint(requests), _own_part(lost, requests[1].spans).lost])
        )
        assert done == [2, requests[1].spans if told == "all lost" else ()]
        return counted

    assert calls(800) < 10 * calls(100)
