"""A queue whose settings cannot be read, as of a later version, keeps no command from reading the others."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.base.outgoing_message import TASK_HEADER
from shardq.storage.opening import open_store
from shardq.storage.records import QueueRecord
from tests.cli.conftest import Shell

READING = {
    "list --counts": "orders",
    "list --interval 10ms": "orders",
    "stats **": "orders",
    "consumers list": "web-1",
    "task list": "welcome",
}
"""Commands that read all queues, with a word that each of them prints of the readable one."""


@pytest.fixture
def mixed(shell: Shell) -> Shell:
    """A store with a queue that can be read between two that cannot."""
    with shardq.connect(shell.url) as client:
        for name in ("a-later", "orders", "z-later"):
            client.create_queue(name).producer().send(b"[]", headers={TASK_HEADER: "welcome"})
        client.queue("orders").consumer(name="web-1").receive(1)[0].release()
    with closing(open_store(shell.url, SystemClock())) as store:
        for name in ("a-later", "z-later"):
            record = store.load_queue(name)
            assert record is not None
            assert store.update_queue(QueueRecord(name, b'{"shards": "many"}', record.version + 1))
    return shell


@pytest.mark.parametrize("command", READING)
def test_the_others_are_shown_and_each_of_these_is_named_once(mixed: Shell, command: str) -> None:
    told = mixed(*command.split())
    assert told.exit_code == 1
    assert READING[command] in told.stdout
    assert [line.partition(" of queue ")[2].split()[0] for line in told.stderr.splitlines()] == [
        "'a-later'",
        "'z-later'",
    ]


@pytest.mark.parametrize("command", READING)
def test_with_json_the_errors_are_objects(mixed: Shell, command: str) -> None:
    told = mixed(*command.split(), "--json")
    assert told.exit_code == 1
    assert READING[command] in str(json.loads(told.stdout))
    errors = [json.loads(line) for line in told.stderr.splitlines()]
    assert [(each["code"], each["exit_code"]) for each in errors] == [("unreadable_settings", 1)] * 2


def test_changes_of_a_pattern_are_made_in_the_others(mixed: Shell) -> None:
    assert mixed("pause", "**", "--yes").exit_code == 1
    assert mixed.json("describe", "orders")["settings"]["delivery_paused"] is True
    told = mixed("receive", "**")
    assert told.exit_code == 1
    assert "queue orders delivers no messages" in told.stderr
    told = mixed("purge", "**", "--yes", "--json")
    assert (told.exit_code, json.loads(told.stdout)["purged"]) == (1, {"orders": 1})
    told = mixed("consumers", "evict", "nobody")
    assert told.exit_code == 3
    assert "'a-later'" in told.stderr


def test_one_that_is_named_is_an_error(mixed: Shell) -> None:
    for command in ("describe", "stats", "peek"):
        told = mixed(command, "a-later")
        assert (told.exit_code, told.stdout) == (1, "")
        assert "of queue 'a-later' cannot be read" in told.stderr
