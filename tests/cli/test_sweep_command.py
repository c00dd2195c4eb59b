"""`shardq sweep` of one queue, of several, of those with a prefix, and of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import shardq
from shardq.base.clock import from_datetime
from shardq.errors import SchemaMismatch, ShardqError, StoreUnavailable
from shardq.testing import ManualClock
from tests.cli.conftest import Shell

QUEUES = ["orders.eu", "orders.us", "letters"]
SUBSCRIPTION = "_shardq/topics/news/mail"


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """Three queues and a subscription. In each queue is a message that is older than the retention."""
    yesterday = ManualClock(from_datetime(datetime.now(UTC) - timedelta(days=1)))
    with shardq.connect(shell.url, clock=yesterday) as client:
        for name in QUEUES:
            queue = client.create_queue(name, retention=3600, shards=1, time_shards=1)
            queue.producer().send(b"old")
        client.create_topic("news").subscribe("mail")
    return shell


def swept(shell: Shell, *arguments: str) -> set[str]:
    """The names of the queues that were swept."""
    return set(shell.json("sweep", *arguments)["queues"])


def cleared(shell: Shell) -> set[str]:
    """The queues whose old message is gone."""
    counts = shell.json("list", "--counts")["queues"]
    return set(QUEUES) - {each["name"] for each in counts if each["counts"]["ready"]}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["letters"], {"letters"}),
        (["letters", "orders.us", "letters"], {"letters", "orders.us"}),
        (["--prefix", "orders."], {"orders.eu", "orders.us"}),
        (["--prefix", "orders.e", "--prefix", "lett", "orders.us"], set(QUEUES)),
        (["--prefix", "nothing"], set()),
    ],
)
def test_the_queues_that_are_given_are_swept_and_no_others(
    shop: Shell, arguments: list[str], names: set[str]
) -> None:
    assert swept(shop, *arguments) - {f"{name}.dead" for name in QUEUES} == names
    assert cleared(shop) == names


def test_all_are_those_that_are_listed_and_those_of_subscriptions(shop: Shell) -> None:
    everything, of_topic = swept(shop, "--all"), swept(shop, "--prefix", f"{SUBSCRIPTION}/")
    mail = {name for name in everything if name.startswith(SUBSCRIPTION)}
    assert everything - mail == {*QUEUES, *(f"{name}.dead" for name in QUEUES)}
    assert mail == of_topic != set()
    assert mail.isdisjoint(swept(shop, "--prefix", "o"))


def test_what_was_removed_is_told_of_each_queue(shop: Shell) -> None:
    told = shop.ok("sweep", "--prefix", "orders.").stderr.splitlines()
    assert [line for line in told if "removed from queue orders.eu" in line and line[0] != "0"]
    assert [line for line in told if "removed from queue orders.us" in line and line[0] != "0"]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, ShardqError]], None]:
    """Lets the sweeps of queues fail, by their names."""
    sweep = shardq.Queue.sweep

    def fail(errors: dict[str, ShardqError]) -> None:
        def swept_or_not(queue: shardq.Queue) -> int:
            if (error := errors.get(queue.name)) is not None:
                raise error
            return sweep(queue)

        monkeypatch.setattr(shardq.Queue, "sweep", swept_or_not)

    return fail


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({"letters": StoreUnavailable("a replica is down")}, 4),
        ({"letters": SchemaMismatch("another version")}, 1),
        (
            {
                "letters": StoreUnavailable("a replica is down"),
                "orders.eu": SchemaMismatch("another version"),
            },
            1,
        ),
    ],
)
def test_a_queue_that_fails_does_not_keep_others_from_being_swept(
    shop: Shell, failing: Callable[..., None], errors: dict[str, ShardqError], code: int
) -> None:
    failing(errors)
    done = shop("sweep", "--all", "--json")
    assert done.exit_code == code
    told = json.loads(done.stdout)
    assert told["failed"] == {
        name: {"code": error.code, "error": str(error)} for name, error in errors.items()
    }
    assert cleared(shop) == set(QUEUES) - errors.keys()
    assert all(f"queue {name} was not swept: {error}" in done.stderr for name, error in errors.items())


def test_a_store_that_does_not_answer_at_all_is_not_asked_for_every_queue(
    shop: Shell, failing: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise StoreUnavailable("no route to host")

    failing({"letters": StoreUnavailable("no answer")})
    monkeypatch.setattr(shardq.Client, "ping", unreachable)
    done = shop("sweep", "orders.eu", "letters", "orders.us", "--json")
    assert done.exit_code == 4
    told = json.loads(done.stdout)
    assert (list(told["queues"]), list(told["failed"])) == (["orders.eu"], ["letters", "orders.us"])
    assert "1 more queue not swept: no route to host" in done.stderr


def test_a_queue_that_is_deleted_meanwhile_is_no_failure_unless_it_was_named(
    shop: Shell, failing: Callable[..., None]
) -> None:
    failing({"letters": shardq.QueueNotFound("queue 'letters' does not exist")})
    assert "letters" not in swept(shop, "--all")
    assert shop("sweep", "letters", "orders.eu").exit_code == 3


def test_a_wrong_name_has_a_hint(shop: Shell) -> None:
    wrong = shop("sweep", "leters")
    assert wrong.exit_code == 3
    assert "did you mean 'letters'?" in wrong.stderr


@pytest.mark.parametrize("arguments", [[], ["--all", "letters"], ["--all", "--prefix", "o"]])
def test_nothing_and_all_beside_something_is_wrong_usage(shop: Shell, arguments: list[str]) -> None:
    assert shop("sweep", *arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["--all"], ["--prefix", "o"], ["orders"]])
def test_a_file_that_is_missing_is_told(shell: Shell, arguments: list[str]) -> None:
    missing = shell("sweep", *arguments)
    assert missing.exit_code == 3
    assert "store_not_found" in missing.stderr
