"""Whatever becomes of messages with large bodies, those that are left can be read, and nothing else stays."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardq
from shardq.testing import ManualClock
from tests.large.conftest import CONTENT, stored_bodies

HOURS = 3 * 3_600.0
QUEUES = ("a", "b")


def other(queue: shardq.Queue) -> str:
    return "b" if queue.name == "a" else "a"


def each_received(do: Callable[[shardq.Queue, shardq.Message], None]) -> Callable[[shardq.Queue], None]:
    def step(queue: shardq.Queue) -> None:
        for message in queue.consumer().receive(1):
            do(queue, message)

    return step


def send_again(queue: shardq.Queue, message: shardq.Message) -> None:
    if message.large is not None:
        queue.producer().send(message.large)


def pop(queue: shardq.Queue) -> None:
    if (message := queue.consumer().pop()) is not None and message.large is not None:
        assert message.open().read() == CONTENT


def replace(queue: shardq.Queue) -> None:
    with suppress(shardq.UniqueKeyTaken):  # by a message that is in flight
        queue.producer().send_stream(io.BytesIO(CONTENT), unique_key="one", on_conflict="replace")


STEPS: dict[str, Callable[[shardq.Queue], object]] = {
    "send": lambda queue: queue.producer().send_stream(io.BytesIO(CONTENT)),
    "send for a while": lambda queue: queue.producer().send_stream(io.BytesIO(CONTENT), ttl=HOURS / 2),
    "replace": replace,
    "send again": each_received(send_again),
    "hold": each_received(lambda _, __: None),
    "release": each_received(lambda _, message: message.release()),
    "put another body": each_received(lambda _, message: message.release(body=b"small")),
    "forward": each_received(lambda queue, message: message.forward(other(queue))),
    "dead-letter": each_received(lambda _, message: message.dead_letter("bad")),
    "ack": each_received(lambda _, message: message.ack()),
    "ack by receipt": each_received(lambda queue, message: queue.ack([message.receipt])),
    "pop": pop,
    "redrive": lambda queue: queue.redrive(),
    "replay": lambda queue: queue.replay(to=other(queue)),
    "remove": lambda queue: [queue.remove(message.id) for message in queue.peek(1)],
    "purge": lambda queue: queue.purge(),
    "sweep": lambda queue: queue.sweep(),
}


@settings(max_examples=20)
@example([("replace", "a", 0.0), ("hold", "a", 0.0), ("replace", "a", 0.0)])
@given(
    history=st.lists(
        st.tuples(
            st.sampled_from(sorted(STEPS)), st.sampled_from(QUEUES), st.sampled_from([0.0, 60.0, HOURS])
        ),
        min_size=5,
        max_size=25,
    )
)
def test_every_history_leaves_whole_bodies_and_no_others(history: list[tuple[str, str, float]]) -> None:
    clock = ManualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        shardq.connect(f"sqlite:///{folder}/queue.db?synchronous=normal", clock=clock) as client,
    ):
        for name in QUEUES:
            client.create_queue(name, history_retention=HOURS if name == "b" else 0)
        for step, name, pause in history:
            if step not in ("replay",) or name == "b":
                STEPS[step](client.queue(name))
            clock.advance(pause)
        clock.advance(HOURS)
        client.queue("a").sweep()
        client.queue("b").sweep()
        assert set(stored_bodies(client)) == whole(client)


def whole(client: shardq.Client) -> set[bytes]:
    """The large bodies of all messages that are stored, which can be read."""
    found = set()
    for name in client.queues():
        queue = client.queue(name)
        for message in (*queue.peek(1_000), *queue.history()):
            if message.large is not None:
                found.add(message.large.id)
                with queue.open(message.id) as body:
                    assert body.read() == CONTENT
    return found
