"""What a client writes down of its own operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from tools.faults.assignment import Assignment
from tools.faults.dial import Dial
from tools.faults.history import Phase, read_history
from tools.faults.logged_claims import LoggedClaims
from tools.faults.recorder import Recorder


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
