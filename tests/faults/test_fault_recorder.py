"""What a client writes down of its own operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.testing import ManualClock
from tools.faults.assignment import Assignment
from tools.faults.dial import Dial
from tools.faults.history import Phase, read_history
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
