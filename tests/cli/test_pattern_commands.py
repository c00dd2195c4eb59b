"""Commands that take a pattern for the name of a queue: what they show first, ask, and do."""

from __future__ import annotations

import pytest

import shardq
from tests.cli.conftest import Shell


@pytest.fixture
def mail(shell: Shell) -> Shell:
    """Two queues that mail/* matches, with two messages and one, and others that it does not match."""
    with shardq.connect(shell.url) as client:
        for name, count in {"mail/fast": 2, "mail/slow": 1, "mail/slow/old": 1, "orders": 1}.items():
            queue = client.create_queue(name, shards=1, time_shards=1, max_deliveries=1)
            queue.producer().send_many([b"to do"] * count)
    return shell


def ready(shell: Shell) -> dict[str, int]:
    """The ready messages of each queue that has some."""
    counts = {each["name"]: each["counts"]["ready"] for each in shell.json("list", "--counts")["queues"]}
    return {name: count for name, count in counts.items() if count}


def settings(shell: Shell, name: str) -> dict[str, object]:
    """The settings of a queue."""
    return dict(shell.json("describe", name)["settings"])


def test_stats_of_a_pattern_count_each_queue(mail: Shell) -> None:
    found = mail.json("stats", "mail/*")["queues"]
    assert {each["queue"]: each["ready"] for each in found} == {"mail/fast": 2, "mail/slow": 1}
    assert mail.ok("stats", "mail/**").stdout.splitlines()[0].split() == [
        "queue", "ready", "delayed", "in", "flight", "late",
    ]  # fmt: skip
    assert mail("stats", "mail/*", "--shards").exit_code == 2


def test_purge_of_a_pattern_shows_what_it_removes_and_asks(mail: Shell) -> None:
    refused = mail("purge", "mail/*", stdin="n\n")
    assert refused.exit_code == 1
    assert "mail/fast: 2 messages" in refused.stderr
    assert "Remove all messages of 2 queues?" in refused.stderr
    assert ready(mail) == {"mail/fast": 2, "mail/slow": 1, "mail/slow/old": 1, "orders": 1}
    assert mail.json("purge", "mail/*", "--yes") == {
        "purged": {"mail/fast": 2, "mail/slow": 1},
        "failed": {},
    }
    assert ready(mail) == {"mail/slow/old": 1, "orders": 1}


def test_pause_and_resume_of_a_pattern_leave_out_queues_that_are_so_already(mail: Shell) -> None:
    mail.ok("pause", "mail/slow")
    paused = mail.ok("pause", "mail/*", stdin="y\n")
    assert "Pause 1 queue?" in paused.stderr
    assert "mail/fast: delivery_paused no -> yes" in paused.stderr
    assert [settings(mail, name)["delivery_paused"] for name in ("mail/fast", "mail/slow", "orders")] == [
        True,
        True,
        False,
    ]
    assert "nothing to change in 2 queues" in mail.ok("pause", "mail/*").stderr
    mail.ok("resume", "mail/**", "--yes")
    assert not settings(mail, "mail/slow")["delivery_paused"]


def test_alter_of_a_pattern_shows_the_present_settings(mail: Shell) -> None:
    altered = mail.ok("alter", "mail/*", "--retention", "1d", "--yes")
    assert "mail/fast: retention none -> 86400 s" in altered.stderr
    assert settings(mail, "mail/slow")["retention"] == 86400
    assert settings(mail, "orders")["retention"] is None
    wrong = mail("alter", "mail/*", "--shards", "0", "--yes")
    assert wrong.exit_code == 2
    assert "shards=0" in wrong.stderr


def test_redrive_of_a_pattern_moves_the_dead_letters_of_each_queue(mail: Shell) -> None:
    with shardq.connect(mail.url) as client:
        for name in ("mail/fast", "mail/slow", "orders"):
            with client.queue(name).consumer() as consumer:
                consumer.receive(1)[0].dead_letter("broken")
    assert ready(mail) == {
        "mail/fast": 1, "mail/fast.dead": 1, "mail/slow.dead": 1, "mail/slow/old": 1, "orders.dead": 1,
    }  # fmt: skip
    redriven = mail.ok("redrive", "mail/*", stdin="y\n")
    assert "mail/fast: 1 message in mail/fast.dead" in redriven.stderr
    assert ready(mail) == {"mail/fast": 2, "mail/slow": 1, "mail/slow/old": 1, "orders.dead": 1}


@pytest.mark.parametrize("command", ["stats", "purge", "pause", "resume", "redrive"])
def test_a_pattern_without_queues_is_not_found(mail: Shell, command: str) -> None:
    missing = mail(command, "letters/*")
    assert missing.exit_code == 3
    assert "'letters/*'" in missing.stderr
    assert "shardq list" in missing.stderr


def test_a_queue_that_fails_keeps_no_other_one_from_being_altered(mail: Shell) -> None:
    with shardq.connect(mail.url) as client:
        client.queue("mail/slow").alter(history_retention=60.0, keep_results=True)
    altered = mail("alter", "mail/*", "--dead-letter-queue", "mail/slow", "--yes")
    assert altered.exit_code == 2
    assert "mail/slow" in altered.stderr
    assert settings(mail, "mail/fast")["dead_letter_queue"] == "mail/slow"
    assert settings(mail, "mail/slow")["dead_letter_queue"] is None


def test_work_takes_a_pattern_and_a_handler_for_it(mail: Shell) -> None:
    report = mail.json(
        "work", "mail/*", "orders", "--handler", "mail/*=builtins:repr", "--handler", "orders=builtins:str",
        "--weight", "mail/*=2", "--idle-exit", "0.1",
    )  # fmt: skip
    assert report["total"]["worked"] == 4
    assert ready(mail) == {"mail/slow/old": 1}


def test_receive_of_a_pattern_prints_the_messages_of_each_queue_that_matches_and_acks_them(
    mail: Shell,
) -> None:
    lines = mail.lines("receive", "mail/*", "--limit", "9")
    assert sorted(each["id"].partition(":")[0] for each in lines) == ["mail/fast", "mail/fast", "mail/slow"]
    assert ready(mail) == {"mail/slow/old": 1, "orders": 1}
    assert mail.ok("receive", "mail/*", "--pop").stdout == ""


def test_receive_of_a_pattern_takes_no_dead_letters_and_says_which_queues_are_paused(mail: Shell) -> None:
    with shardq.connect(mail.url) as client, client.queue("mail/fast").consumer() as consumer:
        for message in consumer.receive(9):
            message.dead_letter("no address")
    mail.ok("pause", "mail/slow")
    told = mail.ok("receive", "mail/*", "--limit", "9")
    assert told.stdout == ""
    assert "queue mail/slow delivers no messages" in told.stderr
    assert "mail/fast" not in told.stderr
    assert ready(mail) == {"mail/fast.dead": 2, "mail/slow": 1, "mail/slow/old": 1, "orders": 1}


def test_receipts_of_a_pattern_are_acked_by_their_queue(mail: Shell) -> None:
    line = mail.ok("receive", "mail/s*", "--no-ack", "--receipts").stdout
    mail.ok("ack", line.partition(":")[0], stdin=line)
    assert "mail/slow" not in ready(mail)


def test_receive_of_a_pattern_that_matches_nothing_says_so(mail: Shell) -> None:
    told = mail("receive", "letters/*", "--wait", "50ms")
    assert told.exit_code == 3
    assert "no queue matches 'letters/*'" in told.stderr
