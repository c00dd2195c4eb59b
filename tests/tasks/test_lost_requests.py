"""Workflows whose workers go on after a request that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.base.clock import Clock
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.opening import open_store
from shardq.tasks import TaskWorker, chord, plans, workflow
from shardq.testing import ManualClock, WrappedStore
from tests.tasks.sums import Sums

P = ParamSpec("P")
T = TypeVar("T")

MOST_REQUESTS = 400


class Failing(WrappedStore):
    """Fails once, at the request ``left`` requests behind the first claim: before it is carried out, or after.

    What a worker asks before it claims is the start of its program, which sees the error.
    """

    left = 0
    after = False
    began = False

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.began |= method == "claim"
        self.left -= self.began
        if self.began and self.left == 0 and not self.after:
            raise StoreUnavailable(f"{method}: the store of this test is away")
        answer = do(*args, **kwargs)
        if self.began and self.left == 0:
            raise OutcomeUnknown(f"{method}: the answer was lost")
        return answer


@pytest.fixture
def failing(url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """A store, and workers that try again at once."""
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
    monkeypatch.setattr("shardq.worker.consuming.Backoff.delay", lambda *_: 0.0)
    return Failing(open_store(url, clock))


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_whichever_request_of_a_worker_fails_once_a_workflow_of_buckets_ends(
    failing: Failing, sums: Sums, clock: ManualClock, *, after: bool
) -> None:
    fewest = 100
    for number in range(MOST_REQUESTS):
        result = chord((sums.add.signature(each, 0) for each in range(5)), sums.total.then()).send()
        failing.left, failing.after, failing.began = number + 1, after, False
        with shardq.Client(failing, retry_seconds=0) as client:
            app = Sums(client)
            TaskWorker(app.tasks, client, threads=0, idle_exit=0).run()
            failed, failing.began = failing.left <= 0, False
            clock.advance(31)
            TaskWorker(app.tasks, client, threads=0, idle_exit=0).run()
        assert result.get(timeout=0) == 10
        assert app.ran["total [0, 1, 2, 3, 4]"] == 1
        if not failed:
            assert number > fewest
            return
    pytest.fail(f"a worker makes more than {MOST_REQUESTS} requests")
