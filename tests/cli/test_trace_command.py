"""``shardq trace``."""

from __future__ import annotations

import shardq
from tests.cli.conftest import Shell


def sent(shell: Shell, queue: str = "orders") -> str:
    return shell.ok("send", queue, "tea").stdout.split()[0]


def test_a_trace_shows_what_became_of_a_message_in_lines_and_in_json(shell: Shell) -> None:
    shell.ok("create", "orders", "--events", "7d", "--max-deliveries", "1")
    identity = sent(shell)
    shell.ok("receive", "orders")
    lines = shell.ok("trace", identity).stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["sent", "claimed", "acked"]
    assert ", delivery 1" in lines[1]
    shown = shell.lines("trace", identity)
    assert [each["kind"] for each in shown] == ["sent", "claimed", "acked"]
    assert {each["message_id"] for each in shown} == {identity}


def test_a_result_is_shown_with_its_message(shell: Shell) -> None:
    shell.ok("create", "sums", "--history-retention", "1d", "--keep-results")
    identities = [sent(shell, "sums") for _ in range(3)]
    with shardq.connect(shell.url) as client, client.queue("sums").consumer() as consumer:
        for result in (b'{"sum": 2}', b"\xff", None):
            consumer.receive(1)[0].ack(result=result)
    shown = shell.lines("history", "sums")
    assert [each.get("result") for each in shown] == ['{"sum": 2}', None, None]
    assert [each.get("result_base64") for each in shown] == [None, "/w==", None]
    assert [line.partition("-> ")[2] for line in shell.ok("history", "sums").stdout.splitlines()] == [
        '{"sum": 2}', "\ufffd", "",
    ]  # fmt: skip
    first = next(each for each in shown if each.get("result"))
    assert shell.json("get", first["id"])["result"] == '{"sum": 2}'
    assert first["id"] in identities


def test_what_is_not_known_is_told(shell: Shell) -> None:
    shell.ok("create", "orders")
    identity = sent(shell)
    result = shell("trace", identity)
    assert result.exit_code == 3
    assert "keeps no events: `shardq alter orders --events 7d`" in result.stderr
    assert f"no event of message {identity} is kept" in result.stderr
    shell.ok("alter", "orders", "--events", "1h")
    kept = sent(shell)
    assert shell.ok("trace", kept, "--json").stderr == ""
    assert shell("trace", "orders").exit_code == 2 or shell("trace", "orders").exit_code == 1
    assert shell("create", "other", "--events", "5s").exit_code in (1, 2)
    shell.ok("alter", "orders", "--events", "none")
    assert shell("trace", kept).exit_code == 3
