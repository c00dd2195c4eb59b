"""What a client writes down of its own operations."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shardq.base.shard import Shard
from shardq.base.waits import Flag
from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from tools.faults.assignment import Assignment
from tools.faults.dial import Dial, distort_time
from tools.faults.history import Phase, read_history
from tools.faults.logged_claims import LoggedClaims
from tools.faults.producing import Supplying
from tools.faults.recorder import Recorder
from tools.faults.role import Interrupt, Role


class InterruptsOneClaim(WrappedStore):
    """Interrupts the first claim, before or after it was done."""

    def __init__(self, inner: Store, *, done: bool) -> None:
        super().__init__(inner)
        self._ways = [done]

    def claim(self, request: Claim) -> Claimed:
        if not self._ways:
            return super().claim(request)
        if self._ways.pop():
            super().claim(request)
        raise Interrupt


@pytest.mark.parametrize(("times", "phase"), [(1, Phase.LOST), (2, Phase.OK)])
def test_a_message_that_one_receive_gave_twice_is_lost_only_when_both_are(
    tmp_path: Path, times: int, phase: Phase
) -> None:
    # Given a message whose first holder has lost it to the second
    clock = ManualClock()
    with Client(open_store(f"sqlite:///{tmp_path}/queue.db", clock)) as client:
        queue = client.create_queue("q", visibility_timeout=10)
        with queue.producer() as producer:
            producer.send(b"m")
        with queue.consumer() as one, queue.consumer() as two:
            first = one.receive()
            clock.advance(11)
            assert two.receive()
            # When the first one's is settled, alone or together with another delivery of it
            told = Assignment(
                role="work", name="w", seed=0, url="", queue="q", log=str(tmp_path / "log"), dial=""
            )
            recorder = Recorder(told, Dial(tmp_path / "dial"), client)
            recorder.settle("ack", ["m"] * times, first.ack, batch=1)
    # Then it says so
    events = read_history([tmp_path / "log"])
    assert {event.phase for event in events if "m" in event.bodies} == {Phase.INVOKE, phase}


def test_a_claim_that_is_repeated_until_it_is_answered_is_one_operation(tmp_path: Path) -> None:
    # Given a store that carries out a claim without answering it
    clock = ManualClock()
    told = Assignment(role="work", name="w", seed=0, url="", queue="q", log=str(tmp_path / "log"), dial="")
    plan = FaultPlan(faults=(Fault("claim", 1, FaultKind.LOST_RESPONSE),))
    store = FaultyStore(open_store(f"sqlite:///{tmp_path}/queue.db", clock), plan)
    with Client(LoggedClaims(store, told, Dial(tmp_path / "dial"))) as client:
        queue = client.create_queue("q", shards=1, time_shards=1)
        with queue.producer() as producer:
            identity = producer.send(b"m")
        # When the consumer repeats it
        assert queue.consumer().receive()
    # Then its log has one claim, whose last outcome has the message
    events = read_history([tmp_path / "log"])
    assert [(event.number, event.verb, event.phase) for event in events] == [
        (1, "take", Phase.INVOKE),
        (1, "take", Phase.UNKNOWN),
        (1, "take", Phase.OK),
    ]
    assert events[-1].bodies == (identity,)


@pytest.mark.parametrize("done", [False, True], ids=["before it was done", "after it was done"])
def test_a_claim_that_was_interrupted_and_is_repeated_is_one_operation(tmp_path: Path, *, done: bool) -> None:
    # Given a client that is interrupted in a claim
    told = Assignment(role="work", name="w", seed=0, url="", queue="q", log=str(tmp_path / "log"), dial="")
    inner = open_store(f"sqlite:///{tmp_path}/queue.db", ManualClock())
    with Client(inner) as client:
        queue = client.create_queue("q", shards=1, time_shards=1)
        with queue.producer() as producer:
            producer.send(b"m")
        store = LoggedClaims(InterruptsOneClaim(inner, done=done), told, Dial(tmp_path / "dial"))
        request = Claim(Shard("q", 0, 0), bytes(16), 1, 30_000_000)
        with pytest.raises(Interrupt):
            store.claim(request)
        # When it repeats the claim
        assert store.claim(request).slices
    # Then the claim began when it was made first
    events = read_history([tmp_path / "log"])
    assert [(event.number, event.phase) for event in events] == [
        (1, Phase.INVOKE),
        (1, Phase.UNKNOWN),
        (1, Phase.OK),
    ]


@pytest.mark.parametrize("sleeps", [True, False])
def test_only_the_clocks_of_a_machine_that_sleeps_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sleeps: bool
) -> None:
    for name in ("time", "time_ns", "monotonic", "monotonic_ns"):
        monkeypatch.setattr(time, name, getattr(time, name))  # so that the test puts it back
    dial, day = Dial(tmp_path / "dial"), 86_400
    dial.ahead, dial.asleep = 2 * day * 10**9, day * 10**9
    moment, since = time.time(), time.monotonic()
    distort_time(dial, sleeps=sleeps)
    assert time.time() - moment > day
    assert (time.monotonic() < since) is sleeps


@pytest.mark.parametrize(("in_step", "raised"), [(True, 1), (False, 0)])
def test_only_a_step_is_interrupted_and_once(tmp_path: Path, *, in_step: bool, raised: int) -> None:
    told = Assignment(role="work", name="w", seed=0, url="", queue="q", log=str(tmp_path / "log"), dial="")
    with Client(open_store(f"sqlite:///{tmp_path}/queue.db", ManualClock())) as client:
        client.create_queue("q")
        role = Role(told, Dial(tmp_path / "dial"), client, Flag())
        cut: list[int] = []

        def interrupted_twice() -> None:
            for _ in range(2):
                try:
                    role.interrupt()
                except Interrupt:
                    cut.append(1)
            role.interrupt()

        if in_step:
            role.step(interrupted_twice)
        role.interrupt()
    assert len(cut) == raised


@pytest.mark.parametrize(("first", "sends"), [(0, 2), (50, 0)], ids=["the first client", "its successor"])
def test_a_round_has_a_few_sends_of_many_mib_and_no_more(tmp_path: Path, first: int, sends: int) -> None:
    told = Assignment(
        role="supply", name="s", seed=1, url="", queue="q", log=str(tmp_path / "log"), dial="", first=first
    )
    with Client(open_store(f"sqlite:///{tmp_path}/queue.db", ManualClock())) as client:
        settings = client.create_queue("q").settings
        role = Supplying(told, Dial(tmp_path / "dial"), client, Flag())
        sizes = [role.paddings(count) for count in (1, 50, 7, *[50] * 10)]
    large = [each for each in sizes if sum(each) > 16 << 20]
    assert len(large) == sends
    assert sum(map(sum, sizes)) < 64 << 20
    assert max(map(max, sizes)) + len("s1-1000000") < settings.max_message_bytes
    assert [len(each) for each in sizes] == [1, 50, 7, *[50] * 10]
