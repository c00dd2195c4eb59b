"""``shardq topic`` and ``shardq subscription``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.commands.topic import row_of
from shardq.cli.main import main
from shardq.topics import Topic
from shardq.topics.subscription import SubscriptionState


def run(folder: Path, *arguments: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["--url", f"sqlite:///{folder}/queue.db", *arguments], input=given)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_relay_ends_what_it_is_at_when_it_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    ended: list[float] = []

    def relay(_topic: Topic, *, wait: float) -> int:
        os.kill(os.getpid(), number)
        ended.append(wait)
        return 0

    run(tmp_path, "topic", "create", "orders")
    monkeypatch.setattr(Topic, "relay", relay)
    assert run(tmp_path, "topic", "relay", "orders")[0] == 0
    assert ended == [5]


def test_topics_and_subscriptions_from_the_command_line(tmp_path: Path) -> None:
    assert run(tmp_path, "topic", "create", "orders", "--retention", "1h")[0] == 0
    for name, pattern in (("mail", "orders.*.created"), ("rest", ">")):
        assert run(tmp_path, "subscription", "create", "orders", name, "--filter", pattern)[0] == 0
    publish = ("topic", "publish", "orders", "--subject")
    assert run(tmp_path, *publish, "orders.7.created", "--header", "a=b", "one", "two")[0] == 0
    assert "2 messages" in run(tmp_path, *publish, "orders.7.paid", given="three\nfour\n")[2]
    assert run(tmp_path, "topic", "relay", "orders", "--once")[0] == 0
    assert json.loads(run(tmp_path, "topic", "list", "--json")[1]) == ["orders"]
    states = json.loads(run(tmp_path, "subscription", "list", "orders", "--json")[1])
    assert [(each["name"], each["ready"]) for each in states] == [("mail", 2), ("rest", 4)]
    heads, mail, rest = run(tmp_path, "subscription", "list", "orders")[1].splitlines()
    assert heads.split() == ["subscription", "filter", "pending", "in", "flight", "history", "queue"]
    assert (mail.split()[:4], rest.split()[:4]) == (
        ["mail", "orders.*.created", "2", "0"], ["rest", ">", "4", "0"],
    )  # fmt: skip
    assert run(tmp_path, "subscription", "seek", "orders", "mail", "--to", "1m")[0] == 0
    assert run(tmp_path, "subscription", "delete", "orders", "mail", "--yes")[0] == 0
    assert run(tmp_path, "topic", "delete", "orders", "-y")[0] == 0
    assert run(tmp_path, "topic", "list")[1] == ""


def test_a_subscription_is_shown_with_what_it_has_not_got(tmp_path: Path) -> None:
    state = SubscriptionState("mail", ">", "q", ready=1, delayed=2, in_flight=3, filling=True, missed=0.0)
    assert row_of(state) == ("mail", ">", "3", "3", "is being copied", "q")
    late = msgspec.structs.replace(state, filling=False, missed=7_200.0)
    assert row_of(late)[4] == "2.0 h missed"


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    run(tmp_path, "topic", "create", "orders")
    for code, arguments in [
        (1, ["topic", "create", "orders"]),
        (2, ["topic", "create", "a/b"]),
        (3, ["topic", "publish", "none", "x"]),
        (2, ["topic", "publish", "orders", "x", "--subject", "a..b"]),
        (3, ["subscription", "seek", "orders", "none", "--to", "earliest"]),
        (3, ["subscription", "delete", "orders", "none", "--yes"]),
        (2, ["subscription", "create", "orders", "mail", "--filter", "a.>.b"]),
        (3, ["topic", "delete", "none", "--yes"]),
    ]:
        exit_code, _, told = run(tmp_path, *arguments)
        assert (exit_code, len(told.splitlines())) == (code, 1), (arguments, told)


def test_a_topic_is_created_again_only_if_that_is_accepted(tmp_path: Path) -> None:
    for flags, code in (((), 0), ((), 1), (("--exist-ok",), 0)):
        assert run(tmp_path, "topic", "create", "orders", *flags)[0] == code


def test_a_rewind_tells_in_words_what_the_topic_no_longer_keeps(tmp_path: Path) -> None:
    run(tmp_path, "topic", "create", "orders", "--retention", "1h")
    run(tmp_path, "subscription", "create", "orders", "mail")
    told = run(tmp_path, "subscription", "seek", "orders", "mail", "--to", "3h")[2]
    assert told == "subscription mail is rewound; the topic no longer keeps the first 2.0 h\n"
    assert (
        run(tmp_path, "subscription", "seek", "orders", "mail", "--to", "1m")[2]
        == "subscription mail is rewound\n"
    )


def test_commands_for_all_queues_look_at_those_of_subscriptions(tmp_path: Path) -> None:
    """Their names are not listed, but a message in them may be late, dead, or held by who died, as in any other."""
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail")
        topic.publish_many([b"order 7", b"order 8"])
        topic.relay()
        consumer = mail.queue.consumer(name="mailer")
        dead, _held = consumer.receive(2, wait=10)
        dead.dead_letter("no address")
        checks = json.loads(run(tmp_path, "doctor", "--json")[1])["checks"]
        (dead_letters,) = [check for check in checks if check["name"] == "dead letters"]
        assert (dead_letters["subject"], dead_letters["ok"]) == (mail.queue.name, False)
        assert mail.queue.name in dead_letters["remedy"]
        assert {check["subject"] for check in checks} == {"store", mail.queue.name, f"{mail.queue.name}.dead"}
        (line,) = json.loads(run(tmp_path, "consumers", "list", "--json")[1])["consumers"]
        assert (line["name"], line["held"], line["queues"]) == ("mailer", 1, [mail.queue.name])
        assert run(tmp_path, "consumers", "evict", "mailer", "--force")[2] == "1 message released\n"
        consumer.close()
