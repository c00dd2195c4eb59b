"""What goes on goes on once, wherever a worker of the pipeline dies and however the messages are claimed again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.pipelines import Forward, Pipeline, PipelineWorker, Split
from shardq.storage.opening import open_store
from shardq.testing import ManualClock
from tests.dying_store import Died
from tests.pipelines.dying import MODES, FragileStore, Mode

LEASE = 400.0


def divide(message: shardq.Message) -> Any:
    word = message.body
    match word[:1]:
        case b"d":
            return None
        case b"s":
            return Split(
                [Forward("mid", word + b"0"), Forward("out", word + b"1"), Forward("out", word + b"2")]
            )
        case _:
            return Forward("mid", word + b"!", delay=1.0 if word.endswith(b"9") else 0.0)


PIPELINE = (
    Pipeline("p")
    .link("in", ["mid", "out"], divide)
    .link("mid", "out", lambda message: message.body + b"m")
    .output("out")
)


def expected(words: list[bytes]) -> Counter[bytes]:
    arrived: list[bytes] = []
    for word in words:
        if word.startswith(b"s"):
            arrived += [word + b"0m", word + b"1", word + b"2"]
        elif not word.startswith(b"d"):
            arrived.append(word + b"!m")
    return Counter(arrived)


class Scene:
    """A store, and workers of one pipeline that come and go."""

    def __init__(self, path: Path, *, in_one_step: bool) -> None:
        self.url, self.in_one_step = f"sqlite:///{path}?synchronous=normal", in_one_step
        self.clock = ManualClock()
        self.clients: list[shardq.Client] = []
        sound, _ = self.client()
        self.sound = sound
        for name in ("in", "mid", "out"):
            sound.create_queue(name, shards=2, time_shards=2, max_deliveries=None, visibility_timeout=LEASE)

    def client(self, calls: int | None = None, mode: Mode = "before") -> tuple[shardq.Client, FragileStore]:
        store = FragileStore(open_store(self.url, self.clock))
        store.calls_left, store.mode, store.in_one_step = calls, mode, self.in_one_step
        self.clients.append(shardq.Client(store, retry_seconds=0.0))
        return self.clients[-1], store

    def send(self, words: list[bytes]) -> None:
        self.sound.queue("in").producer().send_many(words)

    def work(self, *, batch: int, calls: int | None = None, mode: Mode = "before") -> bool:
        """Let a worker come; False when it broke."""
        client, store = self.client(calls, mode)
        with suppress(Died):
            PipelineWorker(PIPELINE, client, batch=batch, idle_exit=0, keep_leases=False).run()
        return store.calls_left is None or store.calls_left >= 0

    def finish(self) -> Counter[bytes]:
        """Let sound workers do the rest, and receive what arrived."""
        for _ in range(4):
            self.clock.advance(2 * LEASE)
            self.work(batch=1)
        arrived: Counter[bytes] = Counter()
        with self.sound.queue("out").consumer() as consumer:
            for _ in range(2):
                batch = consumer.receive(1_000)
                arrived.update(batch.bodies)
                batch.ack()
                self.clock.advance(700)
        return arrived

    def left(self) -> int:
        return sum(len(self.sound.queue(name).peek()) for name in ("in", "mid", "out"))

    def close(self) -> None:
        for client in self.clients:
            with suppress(BaseException):
                client.close()


def scenes(path: Path, *, in_one_step: bool) -> Iterator[Scene]:
    number = 0
    while True:
        number += 1
        scene = Scene(path / f"{number}.db", in_one_step=in_one_step)
        try:
            yield scene
        finally:
            scene.close()


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("in_one_step", [True, False], ids=["in one step", "step by step"])
def test_a_link_that_breaks_at_any_change_sends_nothing_twice(
    tmp_path: Path, mode: Mode, in_one_step: bool
) -> None:
    words = [b"a1", b"s1", b"d1", b"a9"]
    for calls, scene in enumerate(scenes(tmp_path, in_one_step=in_one_step)):
        scene.send(words)
        whole = scene.work(batch=100, calls=calls, mode=mode)
        assert scene.finish() == expected(words), calls
        assert scene.left() == 0, calls
        if whole:
            break
    assert calls > 5


@pytest.mark.parametrize("in_one_step", [True, False], ids=["in one step", "step by step"])
@pytest.mark.parametrize("seed", range(2))
def test_random_histories_of_workers_that_break_send_nothing_twice(
    tmp_path: Path, seed: int, in_one_step: bool
) -> None:
    chance = random.Random(seed)
    scene = Scene(tmp_path / "one.db", in_one_step=in_one_step)
    sent: list[bytes] = []
    for turn in range(8):
        words = [b"%c%d_%d" % (chance.choice(b"asd"), turn, each) for each in range(chance.randrange(5))]
        scene.send(words)
        sent += words
        scene.work(batch=chance.randint(1, 8), calls=chance.randrange(25), mode=chance.choice(MODES))
        scene.clock.advance(chance.choice([0.0, 1.0, LEASE + 1]))
    assert scene.finish() == expected(sent)
    assert scene.left() == 0
    scene.close()
