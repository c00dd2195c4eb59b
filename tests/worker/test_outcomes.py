"""What a handler says of its message: it raises or returns an outcome, or raises an error that has one."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq import Backoff, Batch, Client, DeadLetter, Discard, Message, Outcome, Queue, Retry, Snooze
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.worker import ShellCommand, Worker, WorkerPool, WorkerReport

BROKE = RuntimeError("broke")


@pytest.fixture
def client(url: str, clock: ManualClock) -> Client:
    return shardq.connect(url, clock=clock)


@pytest.fixture
def queue(client: Client) -> Queue:
    return client.create_queue("jobs", shards=1, time_shards=1, max_deliveries=3, history_retention=3_600)


def say(outcome: object, *, raises: bool) -> Callable[[object], object]:
    """A handler that raises or returns it."""

    def handler(_: object) -> object:
        if raises:
            assert isinstance(outcome, BaseException)
            raise outcome
        return outcome

    return handler


def work(queue: Queue, handler: Callable[..., object], **options: Any) -> WorkerReport:
    return Worker(queue, handler, idle_exit=0, **options).run()


def state_of(client: Client, queue: Queue) -> dict[str, Any]:
    """Where the only message is."""
    letters = client.queue("jobs.dead").peek()
    history = list(queue.history())
    found = [*queue.peek(), *history, *letters]
    assert len(found) == 1
    if letters:
        return {
            "dead": letters[0].headers["shardq-reason"],
            "deliveries": letters[0].headers["shardq-deliveries"],
        }
    (message,) = found
    wait = (message.due - client.now()).total_seconds()
    return {"state": message.state.value, "deliveries": message.deliveries, "wait": max(0, round(wait))}


SAID = {
    "retry": (Retry(after=60), {"state": "delayed", "deliveries": 1, "wait": 60}, {"failed": 1}),
    "retry at once": (Retry(after=0), {"state": "ready", "deliveries": 1, "wait": 0}, {"failed": 1}),
    "snooze": (Snooze(60), {"state": "delayed", "deliveries": 0, "wait": 60}, {"snoozed": 1}),
    "discard": (Discard("old"), {"state": "processed", "deliveries": 1, "wait": 0}, {"discarded": 1}),
    "dead letter": (DeadLetter("odd"), {"dead": "odd", "deliveries": 1}, {"failed": 1, "dead_lettered": 1}),
}


@pytest.mark.parametrize("by_batch", [False, True], ids=["by message", "by batch"])
@pytest.mark.parametrize("raises", [False, True], ids=["returned", "raised"])
@pytest.mark.parametrize(("outcome", "state", "counted"), SAID.values(), ids=SAID)
def test_what_a_handler_says_is_done(
    client: Client,
    queue: Queue,
    outcome: Outcome,
    state: dict[str, Any],
    counted: dict[str, int],
    raises: bool,
    by_batch: bool,
) -> None:
    queue.producer().send(b"x")
    worker = Worker(queue, say(outcome, raises=raises), by_batch=by_batch, idle_exit=0)  # type: ignore[call-overload]
    if outcome == Retry(after=0):
        worker = Worker(queue, lambda _: (worker.stop(), outcome)[1], idle_exit=0)
    report = worker.run()
    assert state_of(client, queue) == state
    assert {
        name: getattr(report, name) for name in ("worked", "failed", "snoozed", "discarded", "dead_lettered")
    } == {
        "worked": 0,
        "failed": 0,
        "snoozed": 0,
        "discarded": 0,
        "dead_lettered": 0,
    } | counted


def test_a_message_that_is_always_snoozed_is_never_given_up(queue: Queue, clock: ManualClock) -> None:
    queue.producer().send(b"x")
    for _ in range(10):
        assert work(queue, say(Snooze(60), raises=True)).snoozed == 1
        clock.advance(61)
    assert queue.counts().ready == 1


def test_deliveries_that_failed_count_beside_those_that_were_snoozed(
    client: Client, queue: Queue, clock: ManualClock
) -> None:
    queue.producer().send(b"x")
    said: list[Outcome] = [Snooze(1), Retry(1), Snooze(1), Retry(1), Snooze(1), Retry(1, "for good")]
    for outcome in said:
        work(queue, say(outcome, raises=True))
        clock.advance(2)
    assert state_of(client, queue) == {"dead": "for good", "deliveries": 3}


@pytest.mark.parametrize("kind", FaultKind)
def test_a_snooze_that_is_repeated_takes_one_delivery_back(
    url: str, clock: ManualClock, kind: FaultKind
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan(faults=(Fault("release", 2, kind),)))
    with Client(store, retry_seconds=5.0) as client:
        queue = client.create_queue("jobs", shards=1, time_shards=1, max_deliveries=3, history_retention=60)
        queue.producer().send(b"x")
        for outcome in (Retry(after=1), Snooze(1)):
            work(queue, say(outcome, raises=True))
            clock.advance(2)
        assert store.calls and any(call.fault for call in store.calls)
        (message,) = queue.peek()
        assert message.deliveries == 1


def test_a_retry_can_wait_longer_with_each_delivery(queue: Queue, clock: ManualClock, client: Client) -> None:
    queue.producer().send(b"x")
    for longest in (10, 20):
        work(queue, say(Retry(after=Backoff(10, 600)), raises=True))
        (message,) = queue.peek()
        assert longest / 2 <= (message.due - client.now()).total_seconds() <= longest
        clock.advance(longest)


def test_without_a_reason_it_is_the_error_that_the_outcome_came_from(
    queue: Queue, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(message: Message) -> None:
        try:
            int(message.body)
        except ValueError as error:
            if message.body == b"from":
                raise DeadLetter from error
            raise DeadLetter  # noqa: B904 -- it says where it came from by itself

    queue.producer().send_many([b"from", b"while"])
    work(queue, handler)
    letters = client.queue("jobs.dead").peek()
    assert {letter.headers["shardq-reason"] for letter in letters} == {
        f"ValueError: invalid literal for int() with base 10: {body!r}" for body in (b"from", b"while")
    }
    assert caplog.text.count("int(message.body)") == 2


def test_one_outcome_can_be_raised_for_many_messages_and_keeps_nothing_of_them(
    queue: Queue, client: Client
) -> None:
    given_up = DeadLetter()

    def handler(message: Message) -> None:
        try:
            int(message.body)
        except ValueError as error:
            if message.body == b"from":
                raise given_up from error
            raise given_up  # noqa: B904 -- it says where it came from by itself
        raise given_up

    queue.producer().send_many([b"from", b"1", b"while", b"2"])
    work(queue, handler)
    reasons = {letter.body: letter.headers["shardq-reason"] for letter in client.queue("jobs.dead").peek()}
    assert reasons == {
        b"1": "DeadLetter",
        b"2": "DeadLetter",
        **{
            body: f"ValueError: invalid literal for int() with base 10: {body!r}"
            for body in (b"from", b"while")
        },
    }
    assert (given_up.__traceback__, given_up.__context__, given_up.__cause__) == (None, None, None)


def test_the_outcome_of_a_batch_is_for_the_messages_that_its_handler_has_not_settled(
    queue: Queue, client: Client
) -> None:
    def handler(batch: Batch) -> Outcome:
        batch[0].ack()
        batch[1].release(delay=5)
        return DeadLetter("the rest")

    queue.producer().send_many([b"1", b"2", b"3", b"4"])
    assert work(queue, handler, by_batch=True).lease_lost == 0
    assert [message.body for message in queue.history()] == [b"1"]
    assert [message.body for message in queue.peek()] == [b"2"]
    assert sorted(letter.body for letter in client.queue("jobs.dead").peek()) == [b"3", b"4"]


def test_messages_of_one_batch_have_outcomes_of_their_own(queue: Queue, client: Client) -> None:
    outcomes: dict[bytes, Outcome] = {
        b"1": Snooze(5),
        b"2": Snooze(9),
        b"3": Retry(after=7),
        b"4": Discard(),
        b"5": DeadLetter("a"),
        b"6": DeadLetter("b"),
    }
    queue.producer().send_many([*outcomes, b"7"])
    report = work(queue, lambda message: outcomes.get(message.body))
    assert (report.worked, report.failed, report.snoozed, report.discarded, report.dead_lettered) == (
        1,
        3,
        2,
        1,
        2,
    )
    waits = {message.body: (message.due - client.now()).total_seconds() for message in queue.peek()}
    assert waits == {b"1": 5, b"2": 9, b"3": 7}
    reasons = {letter.body: letter.headers["shardq-reason"] for letter in client.queue("jobs.dead").peek()}
    assert reasons == {b"5": "a", b"6": "b"}


def test_a_hook_sees_that_a_discarded_message_is_acked(url: str, queue: Queue, clock: ManualClock) -> None:
    class Seen(shardq.Hooks):
        acked = 0

        def after_ack(self, queue: str, messages: Sequence[Message]) -> None:
            self.acked += len(messages)

    hooks = Seen()
    queue.producer().send(b"x")
    with shardq.connect(url, clock=clock, hooks=hooks) as client:
        work(client.queue("jobs"), say(Discard("old"), raises=False))
    assert hooks.acked == 1


LOGGED = {
    "Retry": (Retry(after=9, reason="busy"), logging.WARNING, "failed, delivery 1: busy"),
    "Snooze": (Snooze(9), logging.INFO, "snoozed, delivery 1: Snooze"),
    "Discard": (Discard("old"), logging.WARNING, "discarded, delivery 1: old"),
    "DeadLetter": (DeadLetter("odd"), logging.WARNING, "failed, delivery 1: odd"),
}


@pytest.mark.parametrize(("outcome", "level", "text"), LOGGED.values(), ids=LOGGED)
def test_each_outcome_is_logged_with_its_message(
    queue: Queue, caplog: pytest.LogCaptureFixture, outcome: Outcome, level: int, text: str
) -> None:
    caplog.set_level(logging.INFO, "shardq.worker.attempt")
    identity = queue.producer().send(b"x")
    work(queue, say(outcome, raises=True))
    (record,) = [each for each in caplog.records if each.name == "shardq.worker.attempt"]
    assert (record.levelno, record.getMessage()) == (level, f"message {identity} {text}")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("kind", [Retry, Snooze, Discard, DeadLetter])
def test_a_handler_that_returns_the_class_of_an_outcome_acks_nothing(
    queue: Queue, kind: type[Outcome]
) -> None:
    queue.producer().send(b"x")
    with pytest.raises(shardq.InvalidSetting, match=rf"returned the class {kind.__name__}"):
        work(queue, lambda _: kind)
    assert queue.counts().ready == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(after=-1),
        lambda: Retry(after=float("nan")),
        lambda: Retry(after=10**9),
        lambda: Retry(after="soon"),  # type: ignore[arg-type]
        lambda: Retry(reason=5),  # type: ignore[arg-type]
        lambda: Snooze(-1),
        lambda: Snooze(None),  # type: ignore[arg-type]
        lambda: Discard(b"bytes"),  # type: ignore[arg-type]
        lambda: DeadLetter(ValueError("x")),  # type: ignore[arg-type]
        Outcome,
        lambda: Backoff(-1, 5),
        lambda: Backoff(1, "long"),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_make_no_sense_are_refused_when_an_outcome_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(shardq.InvalidSetting):
        make()


class Bare:
    """Mixed into an outcome: a constructor that calls no other, as programs forget to."""

    def __init__(self, account: str) -> None:
        self.account = account


WITHOUT_CONSTRUCTOR: dict[type[Outcome], dict[str, Any]] = {
    Retry: {"state": "delayed", "deliveries": 1},
    Snooze: {"state": "delayed", "deliveries": 0, "wait": 60},
    Discard: {"state": "processed", "deliveries": 1, "wait": 0},
    DeadLetter: {"dead": "Closed", "deliveries": 1},
}


@pytest.mark.parametrize("kind", WITHOUT_CONSTRUCTOR)
@pytest.mark.parametrize("raises", [True, False])
def test_an_outcome_whose_constructor_does_not_call_that_of_its_class_has_its_defaults(
    queue: Queue, client: Client, kind: type[Outcome], raises: bool
) -> None:
    closed: Callable[[str], Outcome] = type("Closed", (Bare, kind), {})
    queue.producer().send(b"0")
    work(queue, say(closed("7"), raises=raises), retry_delay=60)
    expected = WITHOUT_CONSTRUCTOR[kind]
    assert expected.items() <= state_of(client, queue).items()


@pytest.mark.parametrize(
    "outcome",
    [
        Retry(),
        Retry(5, "busy"),
        Retry(Backoff(1, 2)),
        Snooze(7),
        Discard(),
        Discard("old"),
        DeadLetter("odd \udc80"),
    ],
)
def test_an_outcome_can_be_sent_to_another_process(outcome: Outcome) -> None:
    outcome.add_note("a note")
    copy = pickle.loads(pickle.dumps(outcome))
    assert copy == outcome and hash(copy) == hash(outcome)
    assert (type(copy), copy.reason, vars(copy)) == (type(outcome), outcome.reason, vars(outcome))


ERRORS = {
    ConnectionError: Retry(after=30),
    ConnectionRefusedError: Snooze(40),
    ValueError: DeadLetter(),
    KeyError: Discard(),
}


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConnectionError("away"), {"state": "delayed", "deliveries": 1, "wait": 30}),
        (ConnectionResetError("away"), {"state": "delayed", "deliveries": 1, "wait": 30}),
        (ConnectionRefusedError("away"), {"state": "delayed", "deliveries": 0, "wait": 40}),
        (ValueError("wrong"), {"dead": "ValueError: wrong", "deliveries": 1}),
        (UnicodeError("wrong"), {"dead": "UnicodeError: wrong", "deliveries": 1}),
        (KeyError("gone"), {"state": "processed", "deliveries": 1, "wait": 0}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("by_batch", [False, True], ids=["by message", "by batch"])
@pytest.mark.parametrize("named_by", ["mapping", "function"])
def test_an_error_has_the_outcome_that_is_given_for_its_type(
    client: Client, queue: Queue, error: Exception, state: dict[str, Any], by_batch: bool, named_by: str
) -> None:
    def choose(message: Message, error: Exception) -> Outcome | None:
        assert message.body == b"x"
        return next((ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS), None)

    queue.producer().send(b"x")
    on_error = ERRORS if named_by == "mapping" else choose
    work(queue, say(error, raises=True), on_error=on_error, by_batch=by_batch, retry_delay=0)
    assert state_of(client, queue) == state


@pytest.mark.parametrize("answer", [5, "retry", Retry, BROKE])
def test_a_policy_that_fails_is_logged_and_its_message_is_retried_as_usual(
    client: Client, queue: Queue, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    def choose(_: Message, __: Exception) -> Any:
        if answer is BROKE:
            raise BROKE
        return answer

    queue.producer().send(b"x")
    assert work(queue, say(ValueError("wrong"), raises=True), on_error=choose, retry_delay=60).failed == 1
    assert state_of(client, queue)["deliveries"] == 1
    assert "on_error" in caplog.text


@pytest.mark.parametrize("on_error", [ERRORS, lambda _message, _error: None], ids=["mapping", "function"])
def test_an_error_for_which_there_is_no_outcome_is_a_usual_failure(
    client: Client, queue: Queue, on_error: Any
) -> None:
    queue.producer().send(b"x")
    assert work(queue, say(BROKE, raises=True), on_error=on_error, retry_delay=60).failed == 1
    assert 30 <= state_of(client, queue)["wait"] <= 60


def test_an_outcome_that_the_handler_raises_is_no_error_to_be_judged(queue: Queue) -> None:
    queue.producer().send(b"x")
    report = work(queue, say(Snooze(5), raises=True), on_error={Exception: DeadLetter("all")})
    assert (report.snoozed, report.dead_lettered) == (1, 0)


@pytest.mark.parametrize(
    "on_error",
    [
        {"ValueError": Retry()},
        {KeyboardInterrupt: Retry()},
        {ValueError: Retry},
        {ValueError: None},
        {ValueError: 5},
        [ValueError],
        5,
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_at_once(url: str, queue: Queue, on_error: Any) -> None:
    with pytest.raises(shardq.InvalidSetting, match="on_error"):
        Worker(queue, print, on_error=on_error)
    with pytest.raises(shardq.InvalidSetting, match="on_error"):
        WorkerPool(url, "jobs", print, on_error=on_error)


def test_a_policy_that_a_call_does_not_run_is_refused(queue: Queue) -> None:
    async def choose(_: Message, __: Exception) -> Outcome:
        return Retry()

    with pytest.raises(shardq.InvalidSetting, match="on_error"):
        Worker(queue, print, on_error=choose)  # type: ignore[arg-type]
    with pytest.raises(shardq.InvalidSetting, match="on_error"):
        Worker(queue, print, on_error="nowhere:choose")


def test_workers_wait_as_the_queue_says_unless_they_are_told_otherwise(
    client: Client, queue: Queue, clock: ManualClock
) -> None:
    queue.alter(retry_delay=100, max_retry_delay=400, max_deliveries=None)
    queue.producer().send(b"x")
    failing = say(ValueError("wrong"), raises=True)
    waits = []
    for options in ({}, {"max_retry_delay": 10}, {}, {"retry_delay": 1, "max_retry_delay": 1}):
        work(queue, failing, **options)
        (message,) = queue.peek()
        waits.append((message.due - client.now()).total_seconds())
        clock.advance(500)
    limits = [100, 10, 400, 1]
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, limits, strict=True))


def test_a_command_says_by_its_exit_code_that_its_message_is_not_worth_another_try(
    client: Client, queue: Queue
) -> None:
    queue.producer().send_many([b"65", b"75"])
    report = work(
        queue, ShellCommand('read code || true; echo "as $code says" >&2; exit $code'), retry_delay=60
    )
    assert (report.failed, report.dead_lettered) == (2, 1)
    (letter,) = client.queue("jobs.dead").peek()
    assert (letter.body, letter.headers["shardq-reason"]) == (
        b"65",
        "CommandFailed: exit code 65: as 65 says",
    )


def test_a_policy_knows_the_exit_code_of_a_command(queue: Queue) -> None:
    def choose(_: Message, error: Exception) -> Outcome | None:
        return Snooze(60) if getattr(error, "exit_code", None) == 75 else None

    queue.producer().send(b"x")
    assert work(queue, ShellCommand("exit 75"), on_error=choose).snoozed == 1


@pytest.mark.long
def test_outcomes_and_policies_reach_the_processes_of_a_pool(tmp_path: Path, handlers: str) -> None:
    url = f"sqlite:///{tmp_path}/pool.db?synchronous=normal"
    with shardq.connect(url) as client:
        queue = client.create_queue("jobs", shards=1, time_shards=1)
        queue.producer().send_many([b"snooze", b"discard", b"dead", b"ValueError", b"KeyError", b"good"])
        policy = {ValueError: DeadLetter("by type"), KeyError: Retry(after=Backoff(600, 600))}
        report = WorkerPool(url, "jobs", f"{handlers}:as_told", on_error=policy, idle_exit=0).run().total
        assert (report.worked, report.failed, report.dead_lettered, report.snoozed, report.discarded) == (
            1,
            3,
            2,
            1,
            1,
        )
        queue.producer().send_many([b"KeyError"])
        report = (
            WorkerPool(url, "jobs", f"{handlers}:as_told", on_error=f"{handlers}:choose", idle_exit=0)
            .run()
            .total
        )
        assert report.discarded == 1
