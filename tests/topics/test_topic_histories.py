"""Random histories of topics, with relays that die anywhere, against a model of who is to get what."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shardq
from shardq.storage.opening import open_store
from shardq.testing import ManualClock
from shardq.topics import Filter
from tests.dying_store import Died, MortalStore
from tests.topics.receiving import received

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nobody_relays_beside")]

SUBJECTS = ("a.x", "a.y", "b.x")
FILTERS = {"s0": ">", "s1": "a.*", "s2": "*.x"}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(SUBJECTS), st.integers(1, 3)),
        st.tuples(st.just("subscribe"), st.sampled_from(sorted(FILTERS)), st.just("earliest")),
        st.tuples(st.just("subscribe"), st.sampled_from(sorted(FILTERS)), st.just("latest")),
        st.tuples(st.just("delete"), st.sampled_from(sorted(FILTERS))),
        st.tuples(st.just("seek"), st.sampled_from(sorted(FILTERS))),
        st.tuples(st.just("receive"), st.sampled_from(sorted(FILTERS))),
        st.tuples(st.just("relay")),
        st.tuples(st.just("die"), st.integers(0, 14), st.booleans()),
        st.tuples(st.just("time"), st.sampled_from((31, 100, 4_000))),
    ),
    min_size=5,
    max_size=25,
)


class History:
    """A topic, what each subscription got, and what it has to get."""

    def __init__(self, folder: str) -> None:
        self.clock = ManualClock()
        url = f"sqlite:///{Path(folder) / 'queue.db'}?synchronous=off".replace("off", "normal")
        self.mortal = MortalStore(open_store(url, self.clock))
        self.client = shardq.connect(url, clock=self.clock)
        self.topic = self.client.create_topic("t", retention=10 * 86_400)
        self.published: list[tuple[bytes, str]] = []
        self.wanted: dict[str, Counter[bytes]] = {}
        self.got: dict[str, Counter[bytes]] = {}
        self.numbers = count()

    def publish(self, subject: str, messages: int) -> None:
        bodies = [b"%d" % next(self.numbers) for _ in range(messages)]
        self.topic.publish_many(bodies, subject=subject)
        self.published += [(body, subject) for body in bodies]
        for name, wanted in self.wanted.items():
            wanted.update(body for body in bodies if self._takes(name, subject))

    def subscribe(self, name: str, start: str) -> None:
        self.topic.subscribe(name, filter=FILTERS[name], start=start)  # type: ignore[arg-type]
        if name not in self.wanted:
            before = self.published if start == "earliest" else []
            self.wanted[name] = Counter(body for body, subject in before if self._takes(name, subject))
            self.got[name] = Counter()

    def delete(self, name: str) -> None:
        if name in self.wanted:
            self.topic.subscription(name).delete()
            del self.wanted[name], self.got[name]

    def seek(self, name: str) -> None:
        if name in self.wanted:
            self.topic.subscription(name).seek("earliest")
            taken = (body for body, subject in self.published if self._takes(name, subject))
            self.wanted[name], self.got[name] = Counter(taken), Counter()

    def receive(self, name: str) -> None:
        if name in self.wanted:
            self.got[name].update(received(self.topic.subscription(name)))
            assert self.got[name] <= self.wanted[name], name

    def relay(self) -> None:
        self.topic.relay()

    def die(self, calls: int, after: bool) -> None:
        self.mortal.calls_left, self.mortal.after = calls, after
        try:
            shardq.Client(self.mortal, retry_seconds=0).topic("t").relay()
        except Died:
            self.clock.advance(31)  # what it held comes back, else the next step would wait for that
        finally:
            self.mortal.calls_left = None

    def time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def _takes(self, name: str, subject: str) -> bool:
        return Filter.of(FILTERS[name]).takes({"shardq-subject": subject})


@pytest.mark.usefixtures("nobody_relays")
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps)
@example(  # a round whose messages were claimed again by one that died too
    [("publish", "b.x", 3), ("die", 2, True), ("publish", "a.y", 3), ("publish", "a.x", 1), ("die", 2, True),
     ("subscribe", "s2", "earliest")]
)  # fmt: skip
def test_each_subscription_gets_what_it_takes_once_whatever_happens(
    history: list[tuple[object, ...]],
) -> None:
    with TemporaryDirectory() as folder:
        scene = History(folder)
        for name, *arguments in history:
            getattr(scene, str(name))(*arguments)
        scene.clock.advance(40)
        scene.relay()
        for name in sorted(scene.wanted):
            scene.receive(name)
            assert scene.got[name] == scene.wanted[name], name
        scene.client.close()
        scene.mortal.close()
