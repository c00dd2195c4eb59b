from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import threading
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.base.clock import from_datetime
from shardq.base.outgoing_message import OutgoingMessage
from shardq.cli.command import Session
from shardq.cli.commands.doctor import Check, summary
from shardq.cli.main import main
from shardq.cli.message_line import MessageLine, parse_plain
from shardq.cli.message_view import MessageView
from shardq.cli.sending import pieces_of_lines
from shardq.cli.times import duration
from shardq.core.settings import QueueSettings
from shardq.testing import ManualClock


def test_settings_are_given_with_units_and_none(shell) -> None:
    shell.ok(
        "create", "a", "--visibility-timeout", "1m30s", "--retention", "7d", "--max-deliveries", "none",
        "--dedupe-window", "5m", "--shards", "3",
    )  # fmt: skip
    settings = shell.json("describe", "a")["settings"]
    assert (settings["visibility_timeout"], settings["retention"], settings["shards"]) == (90, 604_800, 3)
    assert settings["max_deliveries"] is None
    shell.ok("alter", "a", "--retention", "none", "--sends-paused")
    settings = shell.json("describe", "a")["settings"]
    assert (settings["retention"], settings["sends_paused"], settings["shards"]) == (None, True, 3)


SET = "set SHARDQ_URL to one such as 'sqlite:///queue.db', or unset it"
GIVEN = "give --url one such as 'sqlite:///queue.db', or leave it out"


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["list"], SET),
        (["work", "a", "--exec", "true"], SET),
        (["task", "list"], SET),
        (["list", "--url", ""], GIVEN),
        (["--url", "", "list"], GIVEN),
    ],
)
def test_a_url_that_is_given_or_set_and_is_empty_is_no_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], remedy: str
) -> None:
    monkeypatch.setenv("SHARDQ_URL", "")
    told = CliRunner().invoke(main, arguments)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr == f"shardq: invalid_setting: the URL of the store is empty: {remedy}\n"
    assert not list(tmp_path.iterdir())


def test_a_url_that_is_given_counts_where_the_one_that_is_set_is_empty(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDQ_URL", "")
    assert CliRunner().invoke(main, ["create", "a", "--url", url]).exit_code == 0
    assert CliRunner().invoke(main, ["--url", url, "list"]).stdout == "a\na.dead\n"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("workflow", "task"), ("workflows", "task"), ("worker", "work"), ("pipelines", "pipeline")],
)
def test_an_unknown_command_is_told_with_the_one_that_was_meant(shell, wrong: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in shell(wrong, "list").stderr


def test_every_setting_is_an_option_of_create_and_alter(shell) -> None:
    for command in ("create", "alter"):
        text = shell.ok(command, "--help").stdout
        for name in QueueSettings.__struct_fields__:
            assert "--" + name.replace("_", "-") in text


def test_queues_are_created_listed_and_deleted(shell) -> None:
    shell.ok("create", "a")
    assert shell("create", "a").exit_code == 1
    shell.ok("create", "a", "--exist-ok")
    shell.ok("create", "b")
    assert shell.ok("list").stdout.split() == ["a", "a.dead", "b", "b.dead"]
    assert [queue["name"] for queue in shell.json("list", "b")["queues"]] == ["b", "b.dead"]
    assert shell.json("list", "--counts")["queues"][0]["counts"]["ready"] == 0
    assert "in flight" in shell.ok("list", "--counts").stdout
    shell.ok("delete", "b", "--yes")
    assert shell.ok("list", "b").stdout.split() == ["b.dead"]


def test_nothing_is_listed_for_a_prefix_that_is_no_text(jobs) -> None:
    assert jobs.ok("list", os.fsdecode(b"\xff")).stdout == ""


def test_delete_and_purge_ask_first(jobs) -> None:
    jobs.ok("send", "jobs", "x")
    for command in ("delete", "purge"):
        refused = jobs(command, "jobs", stdin="n\n")
        assert refused.exit_code == 1
        assert refused.stderr.splitlines()[-1].endswith("shardq: cancelled: nothing was changed")
        unasked = jobs(command, "jobs", stdin="")
        assert unasked.stderr.endswith("nothing was changed: give --yes to do it without a question\n")
    assert jobs.json("stats", "jobs")["ready"] == 1
    assert jobs.json("purge", "jobs", "--yes") == {"purged": 1}
    jobs.ok("delete", "jobs", stdin="y\n")


def test_sweep_says_what_it_removed(jobs) -> None:
    jobs.ok("send", "jobs", "x")
    assert jobs.json("sweep", "jobs") == {"removed": 0, "queues": {"jobs": 0}, "failed": {}}
    assert jobs.ok("sweep", "jobs").stderr == "0 things removed from queue jobs\n"
    assert jobs.json("peek", "jobs")


def test_what_is_sent_is_received_and_gone(jobs) -> None:
    ids = jobs.ok("send", "jobs", "one", "two", "--header", "a=b=c", "--priority", "1").stdout.split()
    assert len(ids) == 2
    first = jobs.lines("receive", "jobs")[0]
    assert (first["id"], first["body"], first["headers"], first["priority"]) == (
        ids[0],
        "one",
        {"a": "b=c"},
        1,
    )
    assert jobs.ok("receive", "jobs", "--limit", "9").stdout == "two\n"
    assert jobs.ok("receive", "jobs").stdout == ""
    assert jobs.json("stats", "jobs")["in_flight"] == 0


def test_receipts_ack_release_and_extend(jobs) -> None:
    jobs.ok("send", "jobs", "a", "b", "c")
    lines = jobs.ok("receive", "jobs", "--no-ack", "--receipts", "-n", "3").stdout
    receipts = [line.split("\t")[0] for line in lines.splitlines()]
    jobs.ok("extend", "jobs", "10m", stdin=lines)
    jobs.ok("ack", "jobs", receipts[0])
    jobs.ok("release", "jobs", receipts[1], "--delay", "1h")
    jobs.ok("release", "jobs", "-", stdin=receipts[2])
    stats = jobs.json("stats", "jobs")
    assert (stats["ready"], stats["delayed"], stats["in_flight"]) == (1, 1, 0)
    lost = jobs("ack", "jobs", receipts[2])
    assert (lost.exit_code, lost.stderr.split(": ")[1]) == (1, "lease_lost")


@pytest.mark.parametrize("command", [("ack",), ("release",), ("extend", "1m")])
@pytest.mark.parametrize("body", [b"one\ntwo three", b"\xff", b"\xe9 \xff\n\n", b"\r\n \x85\xa0", b""])
def test_a_receipt_is_read_back_whatever_the_body_behind_it_is(
    jobs, body: bytes, command: tuple[str, ...]
) -> None:
    with shardq.connect(jobs.url) as client, client.queue("jobs").producer() as producer:
        producer.send_many([b"plain", body])
    printed = jobs.ok("receive", "jobs", "--no-ack", "--receipts", "-n", "2").stdout_bytes
    assert printed.count(b"\n") == 2
    assert body.replace(b"\n", rb"\n") in {line.partition(b"\t")[2] for line in printed.split(b"\n")}
    name, *how = command
    assert jobs.ok(name, "jobs", *how, "-", stdin=printed).stderr.startswith("2 messages ")


def test_ids_are_read_from_the_lines_that_a_look_at_messages_prints(jobs) -> None:
    jobs.ok("send", "jobs", "-", "--quiet", stdin=b"\xff\n\xe9 x")
    assert jobs.ok("remove", "-", stdin=jobs.ok("peek", "jobs").stdout_bytes).stderr == "2 messages removed\n"
    told = jobs("remove", "-", stdin=b"\xff\n")
    assert (told.exit_code, told.stderr.count("\n")) == (2, 1)


def test_an_ack_by_receipt_takes_a_result(jobs) -> None:
    jobs.ok("alter", "jobs", "--keep-results", "--history-retention", "1d")
    jobs.ok("send", "jobs", "a", "b")
    lines = jobs.ok("receive", "jobs", "--no-ack", "--receipts", "-n", "2").stdout
    jobs.ok("ack", "jobs", "--codec", "json", "--result", '{"sum":  6}', stdin=lines)
    assert [each["result"] for each in jobs.lines("history", "jobs")] == ['{"sum":6}'] * 2
    assert jobs("ack", "jobs", "--codec", "json", "--result", "{", stdin=lines).exit_code == 2


def test_popped_messages_are_gone_and_json_of_held_ones_has_the_receipt(jobs) -> None:
    jobs.ok("send", "jobs", "a", "b")
    assert "receipt" not in jobs.lines("receive", "jobs", "--pop")[0]
    assert jobs.lines("receive", "jobs", "--no-ack")[0]["receipt"].startswith("jobs:")


def test_json_lines_carry_options_that_take_the_place_of_the_commands(jobs) -> None:
    lines = [
        {"body": "a", "priority": 0, "headers": {"n": 1, "raw": {"base64": "/w=="}}, "dedupe_key": "k"},
        {"body_base64": "/w=="},
        {"body": "later", "delay": 3600},
        {"body": "due", "due": "2100-01-01T00:00:00Z"},
    ]
    jobs.ok("send", "jobs", "-", "--jsonl", "--priority", "7", stdin="\n".join(map(json.dumps, lines)))
    found = {
        message.get("body", message.get("body_base64")): message for message in jobs.lines("peek", "jobs")
    }
    assert (found["a"]["priority"], found["later"]["priority"]) == (0, 7)
    assert found["a"]["headers"] == {"n": 1, "raw": {"base64": "/w=="}}
    assert found["a"]["dedupe_key"] == "k"
    assert (found["due"]["due"], found["later"]["state"]) == ("2100-01-01T00:00:00Z", "delayed")
    assert "/w==" in found


@pytest.mark.parametrize("command", [("peek",), ("receive",), ("receive", "--no-ack")])
def test_what_is_printed_of_messages_is_sent_as_new_ones(jobs, command: tuple[str, ...]) -> None:
    """So a queue moves to another store through a file."""
    jobs.ok("create", "other")
    options = ("--priority", "0", "--header", "from=shop", "--ttl", "1h", "--group", "g")
    jobs.ok("send", "jobs", "a", *options, "--dedupe-key", "k")
    jobs.ok("send", "jobs", "-", "--unique-key", "u", stdin=b"\xff")
    name, *how = command
    printed = jobs.ok(name, "jobs", *how, "--limit", "2", "--json").stdout
    for queue in ("other", "jobs"):  # in its own queue, too, it is another message
        if name == "receive" or queue == "other":
            jobs.ok("send", queue, "--jsonl", "-", stdin=printed)
    copies = {
        message.get("body", message.get("body_base64")): message for message in jobs.lines("peek", "other")
    }
    (first, second) = map(json.loads, sorted(printed.splitlines(), key=lambda line: "body_base64" in line))
    kept = ("priority", "headers", "group", "dedupe_key", "unique_key")
    assert [copies["a"][field] for field in kept] == [first[field] for field in kept]
    assert [copies["/w=="][field] for field in kept] == [second[field] for field in kept]
    expiry = [datetime.fromisoformat(message["expires_at"]) for message in (copies["a"], first)]
    assert abs(expiry[0] - expiry[1]) < timedelta(seconds=1)
    assert copies["a"]["id"] != first["id"]


def test_lines_that_are_sent_again_once_are_not_stored_twice(jobs) -> None:
    """So a move to another store can be repeated, whatever keys the messages had."""
    jobs.ok("create", "other")
    jobs.ok("send", "jobs", "a", "k", "k")
    jobs.ok("send", "jobs", "u", "--unique-key", "u")
    lines = jobs.lines("peek", "jobs")
    for line in lines:  # the second k was sent when the window of the first had ended
        line["dedupe_key"] = "k" if line["body"] == "k" else None
    printed = [json.dumps(line) + "\n" for line in lines]
    for part in (printed[:2], printed, printed):
        jobs.ok("send", "other", "--jsonl", "--once", "-", stdin="".join(part))
    assert sorted(message["body"] for message in jobs.lines("peek", "other")) == ["a", "k", "k", "u"]


def test_a_dead_letter_that_is_sent_again_once_is_not_stored_twice(jobs) -> None:
    jobs.ok("send", "jobs", "x", "--dedupe-key", "job-7")
    jobs.ok("work", "jobs", "--exec", "exit 65", "--idle-exit", "0.2")
    line = jobs.ok("peek", "jobs.dead", "--json").stdout
    for _ in range(2):
        jobs.ok("send", "jobs", "--jsonl", "--once", "-", stdin=line)
    assert [message["body"] for message in jobs.lines("peek", "jobs")] == ["x"]


def test_only_json_lines_are_sent_once(jobs) -> None:
    told = jobs("send", "jobs", "x", "--once")
    assert (told.exit_code, "--jsonl" in told.stderr) == (2, True)


def test_who_sends_json_lines_as_bodies_is_told_of_it(jobs, tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text('{"body": "a"}\n')
    assert "--jsonl" in jobs.ok("send", "jobs", "--file", "jobs.jsonl").stderr
    assert "--jsonl" not in jobs.ok("send", "jobs", "--file", "jobs.jsonl", "--jsonl").stderr
    assert {message["body"] for message in jobs.lines("peek", "jobs")} == {'{"body": "a"}', "a"}


def test_a_line_may_have_every_field_that_is_printed() -> None:
    assert set(MessageView.__struct_fields__) <= set(MessageLine.__struct_fields__)


def test_a_message_that_expired_meanwhile_is_not_delivered_from_its_line(jobs) -> None:
    then, minute_later = "2020-01-01T00:00:00Z", "2020-01-01T00:01:00Z"
    line = {"body": "old", "due": then, "enqueued_at": then, "expires_at": minute_later}
    jobs.ok("send", "jobs", "--jsonl", json.dumps(line))
    assert jobs.ok("receive", "jobs", "--wait", "50ms").stdout == ""


def test_the_line_of_a_large_body_says_how_to_send_that(jobs, tmp_path: Path) -> None:
    (tmp_path / "film").write_bytes(b"frame")
    jobs.ok("send", "jobs", "--large", "film")
    told = jobs("send", "jobs", "--jsonl", "-", stdin=jobs.ok("peek", "jobs", "--json").stdout)
    assert told.exit_code == 2
    assert "send --large FILE" in told.stderr


def test_values_are_sent_and_shown_with_a_codec(jobs) -> None:
    jobs.ok("send", "jobs", '{"a": [1, 2]}', "--codec", "msgpack")
    assert jobs.lines("peek", "jobs", "--codec", "msgpack")[0]["body"] == {"a": [1, 2]}
    assert jobs.ok("receive", "jobs", "--codec", "msgpack").stdout == '{"a":[1,2]}\n'
    assert jobs("send", "jobs", "no json", "--codec", "json").exit_code == 2


def test_a_file_is_sent_line_by_line_without_its_empty_lines(jobs, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\r\n\n\xff\n\r\nlast without an end")
    assert jobs.json("send", "jobs", "--file", str(file))["sent"] == 3
    bodies = {message.get("body", message.get("body_base64")) for message in jobs.lines("peek", "jobs")}
    assert bodies == {"one", "/w==", "last without an end"}


class Drops(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def __init__(self, content: bytes, most: int) -> None:
        super().__init__(content)
        self._most = most

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(self._most)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"a", b"a\n", b"\n\na\r\n\nb", b"long\nlonger line\n\r\nend\r", b"{no\nx"]
)
def test_lines_are_the_same_however_a_pipe_cuts_them(content: bytes, most: int) -> None:
    parse = partial(parse_plain, codec="bytes", shared=OutgoingMessage(body=b""))
    pieces = list(pieces_of_lines(Drops(content, most), parse))
    lines = enumerate(content.split(b"\n"), 1)
    wanted = [(number, body) for number, line in lines if (body := line.removesuffix(b"\r"))]
    found = [
        (place, each.body)
        for piece in pieces
        for place, each in zip(piece.places, piece.messages, strict=True)
    ]
    assert found == wanted
    assert sum(piece.read for piece in pieces) == len(content) + (
        not content.endswith(b"\n") and content != b""
    )


def test_an_argument_is_sent_as_it_is(jobs) -> None:
    jobs.ok("send", "jobs", "one\r", "\r", "")
    assert {message["body"] for message in jobs.lines("peek", "jobs")} == {"one\r", "\r", ""}


def test_what_could_not_be_sent_is_kept_and_can_be_sent_again(jobs, tmp_path: Path) -> None:
    jobs.ok("alter", "jobs", "--max-message-bytes", "10")
    rest = str(tmp_path / "rest.jsonl")
    stdin = b"one\ntwo\n" + b"x" * 11 + b"\n\xff\nfour\n"
    failed = jobs("send", "jobs", "-", "--unsent", rest, "--quiet", stdin=stdin)
    assert failed.exit_code == 2
    assert failed.stderr.startswith("shardq: message_too_large") or "partial_send" in failed.stderr
    assert rest in failed.stderr
    before = jobs.json("stats", "jobs")["ready"]
    jobs.ok("alter", "jobs", "--max-message-bytes", "100")
    again = jobs.json("send", "jobs", "--jsonl", "--file", rest)
    assert before + again["sent"] == 5
    assert "/w==" in {message.get("body_base64") for message in jobs.lines("peek", "jobs")}


def test_a_line_that_is_no_message_is_named_and_the_rest_is_kept(jobs, tmp_path: Path) -> None:
    rest = tmp_path / "rest.jsonl"
    failed = jobs(
        "send", "jobs", "-", "--jsonl", "--unsent", str(rest), stdin='{"body":"a"}\n{"bod":1}\n{"body":"c"}'
    )
    assert (failed.exit_code, len(failed.stdout.split())) == (2, 1)
    assert "line 2" in failed.stderr
    assert [json.loads(line).get("body") for line in rest.read_text().splitlines()] == [None, "c"]


@pytest.mark.parametrize(
    "options",
    [{"priority": 77}, {"delay": -1}, {"dedupe_key": ""}, {"headers": {"": 1}}, {"id": "other:0:0:ab:0"}],
    ids=lambda options: next(iter(options)),
)
def test_a_json_line_with_a_wrong_option_is_named_and_what_stands_before_it_is_sent(
    jobs, tmp_path: Path, options: dict[str, object]
) -> None:
    rest = tmp_path / "rest.jsonl"
    lines = [{"body": "a"}, {"body": "b"} | options, {"body": "c"}]
    stdin = "\n".join(map(json.dumps, lines))
    failed = jobs("send", "jobs", "-", "--jsonl", "--unsent", str(rest), stdin=stdin)
    assert (failed.exit_code, len(failed.stdout.split())) == (2, 1)
    assert "line 2" in failed.stderr
    assert [json.loads(line)["body"] for line in rest.read_text().splitlines()] == ["b", "c"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--jsonl"], b'{"body": "%s"}'),
        (["--jsonl"], b'{"body": "b", "headers": {"%s": 1}}'),
        (["--jsonl", "--codec", "json"], b'{"body": {"%s": 1}}'),
        (["--codec", "json"], b'"%s"'),
        (["--codec", "msgpack"], b'["%s"]'),
        (["--codec", "text"], b"%s"),
    ],
)
def test_a_line_that_is_no_utf8_is_named_and_kept_with_those_after_it(
    jobs, tmp_path: Path, options: list[str], line: bytes
) -> None:
    rest = tmp_path / "rest.jsonl"
    lines = [line % text.encode("latin-1") for text in ("a", "é", "c")]
    failed = jobs("send", "jobs", "-", *options, "--unsent", str(rest), stdin=b"\n".join(lines))
    assert (failed.exit_code, len(failed.stdout.split())) == (2, 1)
    assert "line 2: " in failed.stderr
    kept = rest.read_bytes().splitlines()
    assert (len(kept), kept[0]) == (2, lines[1])
    jobs.ok("send", "jobs", "-", "--jsonl", *options, stdin=kept[1])


def test_a_file_for_the_rest_that_cannot_be_made_is_refused_before_anything_is_sent(
    jobs, tmp_path: Path
) -> None:
    refused = jobs("send", "jobs", "one", "--unsent", str(tmp_path / "missing" / "rest"))
    assert refused.exit_code == 2
    assert "missing" in refused.stderr
    assert jobs.json("stats", "jobs")["ready"] == 0


FAULTY: dict[str, tuple[list[str], str | bytes]] = {
    "bytes": (["--jsonl"], '{"body": 7}'),
    "text": ([], b"\xff"),
    "json": ([], "{no"),
    "msgpack": (["--jsonl"], '{"bodie": 1}'),
}


def _line(codec: str, options: list[str], number: int) -> str:
    value: Any = f"n{number}" if codec in ("bytes", "text") else {"n": number, "half": 0.5}
    body: str = value if codec == "text" else json.dumps(value)
    return json.dumps({"body": value}) if options else body


@pytest.mark.parametrize("codec", FAULTY)
def test_every_line_that_was_not_sent_is_kept_at_its_place_the_faulty_ones_too(
    jobs, tmp_path: Path, codec: str
) -> None:
    # Given more lines than one reading takes, some of them faulty
    options, bad = FAULTY[codec]
    faulty = bad if isinstance(bad, bytes) else bad.encode()
    lines = [_line(codec, options, number).encode() for number in range(6)]
    lines[2:2], lines[5:5] = [faulty], [faulty]
    first, second, third = (tmp_path / f"the {name} rest" for name in ("first", "second", "third"))
    # When they are sent, and what is kept is sent again, each time without the faulty line at its head
    send = ["send", "jobs", "--codec", codec, "--unsent"]
    failed = jobs(*send, str(first), *options, "-", stdin=b"\n".join(lines))
    assert (failed.exit_code, len(failed.stdout.split())) == (2, 2)
    kept = first.read_bytes().splitlines()
    assert (len(kept), kept[0], kept[3]) == (6, faulty, faulty)
    failed = jobs(*send, str(second), "--jsonl", "-", stdin=b"\n".join(kept[1:]))
    assert (failed.exit_code, len(failed.stdout.split())) == (2, 2)
    kept = second.read_bytes().splitlines()
    assert (len(kept), kept[0]) == (3, faulty)
    jobs.ok(*send, str(third), "--jsonl", "-", stdin=b"\n".join(kept[1:]))
    # Then each is there once, as it would have been
    sent = [message["body"] for message in jobs.lines("peek", "jobs", "--codec", codec)]
    value = (lambda n: f"n{n}") if codec in ("bytes", "text") else (lambda n: {"n": n, "half": 0.5})
    assert sorted(map(str, sent)) == sorted(str(value(number)) for number in range(6))


def test_a_faulty_line_is_kept_when_the_store_refuses_what_was_read_before_it(jobs, tmp_path: Path) -> None:
    jobs.ok("alter", "jobs", "--max-message-bytes", "10")
    rest = tmp_path / "rest"
    lines = [json.dumps({"body": "x" * 11}), "no message", json.dumps({"body": "y"})]
    assert jobs("send", "jobs", "-", "--jsonl", "--unsent", str(rest), stdin="\n".join(lines)).exit_code == 2
    kept = rest.read_text().splitlines()
    assert (len(kept), kept[1]) == (3, "no message")


def test_the_file_that_is_sent_may_be_the_one_that_keeps_the_rest(jobs, tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    lines = [json.dumps({"body": "x" * 100})] * 30_000  # more than one reading
    rest.write_text("\n".join(["no message", *lines]))
    assert jobs("send", "jobs", "--jsonl", "--file", str(rest), "--unsent", str(rest)).exit_code == 2
    assert len(rest.read_text().splitlines()) == 30_001
    assert [path.name for path in tmp_path.glob("rest*")] == ["rest"]


def test_lines_that_an_earlier_send_kept_are_not_overwritten(jobs, tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    jobs("send", "nowhere", "-", "--unsent", str(rest), stdin="one")
    refused = jobs("send", "nowhere", "-", "--unsent", str(rest), stdin="two")
    assert refused.exit_code == 2
    assert "send it or move it away first" in refused.stderr
    assert [json.loads(line)["body"] for line in rest.read_text().splitlines()] == ["one"]


def test_everything_is_kept_when_there_is_no_queue(jobs, tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    failed = jobs("send", "nowhere", "-", "--unsent", str(rest), stdin="one\ntwo")
    assert (failed.exit_code, failed.stdout) == (3, "")
    assert [json.loads(line)["body"] for line in rest.read_text().splitlines()] == ["one", "two"]


@pytest.mark.parametrize("queue", ["jobs", "nowhere"])
def test_everything_is_kept_when_it_is_interrupted_before_the_queue_is_known(
    jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    # Given a store that takes long to answer, and somebody who does not wait for it
    opened = Session.queue

    def slow(session: Session, name: str) -> shardq.Queue:
        os.kill(os.getpid(), signal.SIGINT)
        return opened(session, name)

    monkeypatch.setattr(Session, "queue", slow)
    rest = tmp_path / "rest.jsonl"
    ended = jobs("send", queue, "-", "--unsent", str(rest), stdin="one\ntwo\n")
    assert ended.exit_code == {"jobs": 130, "nowhere": 3}[queue]
    assert "2 lines kept" in ended.stderr
    assert [json.loads(line)["body"] for line in rest.read_text().splitlines()] == ["one", "two"]


def test_delays_and_due_times_of_a_json_line_are_written_as_those_of_the_options(jobs) -> None:
    lines = [
        {"body": "5s", "delay": "5s"},
        {"body": "1h30m", "delay": "1h30m"},
        {"body": "10m", "due": "10m"},
    ]
    before = datetime.now(UTC)
    jobs.ok("send", "jobs", "-", "--jsonl", "--delay", "7d", stdin="\n".join(map(json.dumps, lines)))
    after = datetime.now(UTC)
    for message in jobs.lines("peek", "jobs"):
        due = datetime.fromisoformat(message["due"]) - timedelta(seconds=duration(message["body"]))
        assert before - timedelta(seconds=1) <= due <= after + timedelta(seconds=1)
    wrong = jobs("send", "jobs", '{"body":"x","delay":"soon"}', "--jsonl")
    assert wrong.exit_code == 2
    assert "'soon' is not a duration" in wrong.stderr


def test_a_ttl_is_given_for_all_messages_or_in_a_line_and_shown(jobs, tmp_path: Path) -> None:
    rest = tmp_path / "rest.jsonl"
    lines = [{"body": "600"}, {"body": "5", "ttl": "5s"}, {"body": "7", "ttl": 7, "delay": "1h"}]
    jobs.ok("send", "jobs", "-", "--jsonl", "--ttl", "10m", stdin="\n".join(map(json.dumps, lines)))
    jobs.ok("send", "jobs", "none")
    for message in jobs.lines("peek", "jobs"):
        if message["body"] == "none":
            assert message["expires_at"] is None
        else:
            due, end = (datetime.fromisoformat(message[name]) for name in ("due", "expires_at"))
            assert end - due == timedelta(seconds=int(message["body"]))
    # A line that is kept keeps its ttl
    jobs.ok("pause", "jobs", "--sends")
    failed = jobs("send", "jobs", "x", "--ttl", "90s", "--unsent", str(rest))
    assert failed.exit_code != 0
    assert json.loads(rest.read_text())["ttl"] == 90
    # A wrong one is refused
    for wrong in (("x", "--ttl", "soon"), ("x", "--ttl", "0s"), ('{"body":"x","ttl":"soon"}', "--jsonl")):
        assert jobs("send", "jobs", *wrong).exit_code == 2


def test_expired_messages_become_dead_letters_by_a_setting(jobs) -> None:
    jobs.ok("alter", "jobs", "--dead-letter-expired")
    assert jobs.json("describe", "jobs")["settings"]["dead_letter_expired"] is True


def test_a_message_that_is_due_in_ten_minutes_is_not_delivered_now(jobs) -> None:
    jobs.ok("send", "jobs", "later", "--due", "10m")
    assert jobs.ok("receive", "jobs").stdout == ""
    jobs.ok("send", "jobs", "long due", "--due", "2020-01-01T00:00:00")
    assert jobs.ok("receive", "jobs").stdout == "long due\n"


def test_json_of_a_send_has_the_ids_also_of_what_was_stored_before_a_failure(jobs) -> None:
    ids = jobs.json("send", "jobs", "one", "two")["ids"]
    assert [jobs.ok("get", one).stdout for one in ids] == ["one\n", "two\n"]
    assert "ids" not in jobs.json("send", "jobs", "three", "--quiet")
    failed = jobs("send", "jobs", "-", "--jsonl", "--json", stdin='{"body":"four"}\nno message')
    assert failed.exit_code == 2
    (fourth,) = json.loads(failed.stdout)["ids"]
    assert jobs.ok("get", fourth).stdout == "four\n"


def test_an_existing_queue_with_other_settings_is_left_and_the_exit_code_is_2(jobs) -> None:
    jobs.ok("create", "jobs", "--exist-ok", "--shards", "2", "--max-deliveries", "1")
    refused = jobs("create", "jobs", "--exist-ok", "--shards", "2", "--time-shards", "5", "--retention", "1d")
    assert refused.exit_code == 2
    assert "not applied: time-shards 5" in refused.stderr
    assert "shards 2 (" not in refused.stderr
    assert "alter jobs" in refused.stderr
    assert jobs.json("describe", "jobs")["settings"]["time_shards"] == 2


def test_list_says_that_the_file_is_not_there_and_makes_none(shell, tmp_path: Path) -> None:
    for arguments in ((), ("a",), ("--json",), ("--counts",)):
        missing = shell("list", *arguments)
        assert (missing.exit_code, missing.stdout) == (3, "")
        assert "queue.db does not exist" in missing.stderr
    assert not (tmp_path / "queue.db").exists()
    shell.ok("create", "jobs")
    assert shell.ok("list", "nothing").stdout == ""


def test_one_message_is_not_called_messages(jobs) -> None:
    jobs.ok("alter", "jobs", "--history-retention", "1h", "--max-deliveries", "none")
    (identity,) = jobs.ok("send", "jobs", "a").stdout.split()
    receipt = jobs.ok("receive", "jobs", "--no-ack", "--receipts").stdout
    for command in (["extend", "jobs", "1m"], ["release", "jobs"]):
        assert jobs.ok(*command, stdin=receipt).stderr.startswith("1 message ")
    receipt = jobs.ok("receive", "jobs", "--no-ack", "--receipts").stdout
    assert jobs.ok("ack", "jobs", stdin=receipt).stderr == "1 message acked\n"
    assert jobs.ok("history", "jobs", "--replay").stderr.startswith("1 message sent again")
    assert jobs("delete", "jobs", stdin="n\n").stderr.startswith("Delete queue jobs with 1 message?")
    assert jobs.ok("purge", "jobs", "--yes").stderr.startswith("1 message removed")
    assert (
        jobs.ok("remove", identity).stderr == "1 message removed\n"
    )  # a processed one too, as its help says
    assert jobs("remove", identity).stderr.splitlines()[0] == "0 messages removed"


def test_remove_says_what_it_removes(shell) -> None:
    text = " ".join(shell.ok("remove", "--help").stdout.split())
    assert "in any state, in flight and processed too" in text


def test_doctor_counts_the_oldest_from_what_is_due(jobs) -> None:
    """A message that was sent long ago is not late before it is due, and then only since it is."""

    def age(*, delay: float) -> dict[str, str | bool]:
        """What the doctor says after a message that was sent a day ago."""
        with shardq.connect(jobs.url, clock=ManualClock(from_datetime(yesterday))) as client:
            client.queue("jobs").producer().send(b"x", delay=delay)
        checks = json.loads(jobs("doctor", "jobs", "--json").stdout)["checks"]
        return next(check for check in checks if check["name"] == "oldest due")

    day, hour = 86_400, 3_600
    yesterday = datetime.now(UTC) - timedelta(seconds=day)
    assert (age(delay=day + hour)["ok"], age(delay=day + hour)["value"]) == (True, "none")
    assert age(delay=day - 60)["ok"]
    late = age(delay=day - hour)
    assert (late["ok"], str(late["value"]).partition(", ")[2]) == (False, "2 ready")
    assert "start workers" in str(late["remedy"])


def test_free_permits_are_not_late(jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait until somebody needs them. A worker, which the doctor would propose, would do away with them."""
    with shardq.connect(jobs.url) as client:
        with client.semaphore("smtp", permits=1).acquire():
            pass
        assert client.queue("_shardq/permits/smtp").counts().ready == 1
    monkeypatch.setattr("shardq.cli.commands.doctor.LATE_SECONDS", -1.0)
    monkeypatch.setattr("shardq.cli.commands.doctor.LATE_LEASES", -1)
    checks = json.loads(jobs("doctor", "_shardq/permits/smtp", "--json").stdout)["checks"]
    assert [check["name"] for check in checks if check["subject"] == "_shardq/permits/smtp"] == [
        "delivery",
        "sends",
        "ring",
    ]


def test_a_group_waits_for_a_message_that_was_given_up(jobs) -> None:
    assert jobs("alter", "jobs", "--on-dead-letter", "wait").exit_code == 2
    jobs.ok("alter", "jobs", "--on-dead-letter", "block", "--max-deliveries", "1")
    jobs.ok("send", "jobs", "--group", "a", "first", "second")
    jobs.ok("work", "jobs", "--exec", "exit 65", "--idle-exit", "0.2")
    assert "blocked: " in jobs.ok("peek", "jobs", "--blocked").stdout
    assert "9000-" not in jobs.ok("peek", "jobs", "--blocked").stdout  # its due time is never
    (found,) = jobs.lines("peek", "jobs", "--blocked")
    assert (found["body"], found["group"], "65" in found["blocked"]) == ("first", "a", True)
    assert jobs.ok("receive", "jobs", "--limit", "9").stdout == ""
    checks = json.loads(jobs("doctor", "jobs", "--json").stdout)["checks"]
    (check,) = [check for check in checks if check["name"] == "blocked groups"]
    assert (check["ok"], check["value"], "shardq redrive jobs" in check["remedy"]) == (False, "1 group", True)
    assert 1 in jobs.json("redrive", "jobs").values()
    assert jobs.ok("receive", "jobs", "--limit", "9", "--ack").stdout == "first\nsecond\n"


def test_the_copy_of_a_message_that_blocks_its_group_is_delivered(jobs, tmp_path) -> None:
    jobs.ok("alter", "jobs", "--on-dead-letter", "block", "--max-deliveries", "1")
    jobs.ok("send", "jobs", "--group", "a", "first", "second")
    jobs.ok("work", "jobs", "--exec", "exit 65", "--idle-exit", "0.2")
    lines = tmp_path / "jobs.jsonl"
    lines.write_text(jobs.ok("peek", "jobs", "--json").stdout)
    jobs.ok("create", "copies")
    jobs.ok("send", "copies", "--jsonl", "--file", str(lines))
    assert jobs.ok("receive", "copies", "--limit", "9", "--ack").stdout == "first\nsecond\n"


def test_the_copy_of_a_dead_letter_is_not_refused_by_the_key_that_it_was_sent_with(jobs) -> None:
    """Who chooses among dead letters sends their lines, and removes them then."""
    jobs.ok("send", "jobs", "x", "--dedupe-key", "job-7")
    jobs.ok("work", "jobs", "--exec", "exit 65", "--idle-exit", "0.2")
    line = jobs.ok("peek", "jobs.dead", "--json").stdout
    assert json.loads(line)["dedupe_key"] == "job-7"
    jobs.ok("send", "jobs", "-", "--jsonl", stdin=line)
    assert jobs.ok("receive", "jobs").stdout == "x\n"


def test_a_slow_send_has_a_rate_all_the_same(jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, rate in ((0.01, "200/s"), (8.0, "0.25/s")):
        monkeypatch.setattr("shardq.cli.commands.send._Show.seconds", seconds)
        assert rate in jobs.ok("send", "jobs", "a", "b").stderr.split()


@pytest.mark.parametrize("key", ["dedupe", "unique"])
def test_a_send_tells_how_many_were_not_stored_for_their_keys(jobs, key: str, tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"body": body, f"{key}_key": body}) for body in "aba")
    told = jobs.ok("send", "jobs", "-", "--jsonl", stdin=lines).stderr
    assert "1 of 3 not stored: another message has the key" in told
    assert "1 of 1 not stored" in jobs.ok("send", "jobs", "a", f"--{key}-key", "a").stderr
    assert "not stored" not in jobs.ok("send", "jobs", "c", f"--{key}-key", "c").stderr
    (tmp_path / "film").write_bytes(b"film")
    large = jobs.ok("send", "jobs", "--large", str(tmp_path / "film"), f"--{key}-key", "a")
    assert "1 of 1 not stored" in large.stderr


def test_a_queue_is_described_from_its_name_on(jobs) -> None:
    told = [line.split("  ", 1) for line in jobs.ok("describe", "jobs").stdout.splitlines()]
    facts = {name: value.strip() for name, value in told}
    assert told[0][0] == "name"
    assert (facts["name"], facts["delivery paused"], facts["dead letter queue"]) == (
        "jobs",
        "no",
        "jobs.dead",
    )


def test_the_numbers_of_a_described_queue_have_units(jobs) -> None:
    jobs.ok("alter", "jobs", "--retention", "14d")
    jobs.ok("send", "jobs", "x")
    facts = dict(line.split("  ", 1) for line in jobs.ok("describe", "jobs").stdout.splitlines())
    assert facts["visibility timeout"].strip() == "30 s"
    assert facts["retention"].strip() == "1209600 s (14.0 days)"
    assert facts["lap seconds"].strip() == "60 s"
    jobs.ok("alter", "jobs", "--visibility-timeout", "5000")  # seconds, which no other unit shows exactly
    assert "5000 s (83 min)" in jobs.ok("describe", "jobs").stdout
    assert facts["oldest"].endswith(" UTC")
    assert facts["max message bytes"].strip() == "1048576"


def test_a_dead_letter_is_shown_with_its_reason_and_earlier_deliveries(jobs) -> None:
    jobs.ok("send", "jobs", "x")
    with shardq.connect(jobs.url) as client, client.queue("jobs").consumer() as consumer:
        consumer.receive(1)[0].dead_letter("no address")
    shown = jobs.ok("peek", "jobs.dead").stdout
    assert shown.endswith("  x  (no address)\n")
    assert "  x1  " in shown


def test_commands_for_all_queues_leave_out_one_that_was_deleted_since_they_were_listed(
    jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("gone", "jobs", "jobs.dead")
    monkeypatch.setattr(shardq.Client, "queues", lambda *_: names)
    monkeypatch.setattr("shardq.cli.commands.list_queues.listed", lambda *_: names)
    assert [each["name"] for each in jobs.json("list", "--counts")["queues"]] == ["jobs", "jobs.dead"]
    assert {each["subject"] for each in json.loads(jobs("doctor", "--json").stdout)["checks"]} == {
        "store", "jobs", "jobs.dead",
    }  # fmt: skip
    assert jobs.json("consumers", "list") == {"consumers": []}
    assert jobs.json("task", "list") == {"tasks": [], "workflows": []}
    assert "consumer_not_found" in jobs("consumers", "evict", "nobody").stderr
    for named in (
        ["doctor"],
        ["consumers", "list"],
        ["task", "list"],
        ["consumers", "evict", "nobody", "--queue"],
    ):
        assert jobs(*named, "gone").exit_code == 3


def test_the_doctor_of_very_many_queues_shows_what_is_not_in_order(
    jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.ok("create", "other")
    jobs.ok("pause", "jobs")
    assert "other" in jobs("doctor").stdout
    monkeypatch.setattr("shardq.cli.commands.doctor.MOST_SHOWN", 10)
    told = jobs("doctor")
    assert {line.split()[1] for line in told.stdout.splitlines()} == {"store", "jobs"}
    assert "too many to be shown" in told.stderr
    assert "other" in {each["subject"] for each in json.loads(jobs("doctor", "--json").stdout)["checks"]}


def test_doctor_shows_only_what_needs_a_look_if_it_is_told_so(jobs) -> None:
    jobs.ok("pause", "jobs")  # its file may be in a folder that SQLite knows nothing of
    shown = jobs("doctor", "jobs", "--quiet")
    assert shown.exit_code == 1
    assert [line.split()[:4] for line in shown.stdout.splitlines() if " jobs " in line] == [
        ["WRONG", "jobs", "delivery", "paused"]
    ]
    assert not [line for line in shown.stdout.splitlines() if line.startswith("ok")]


@pytest.mark.parametrize(
    ("ok", "warning", "told"),
    [
        (True, False, "1 check, all is well"),
        (True, True, "1 check, 1 warning"),
        (False, False, "1 of 1 check not in order"),
    ],
)
def test_the_doctor_does_not_say_that_all_is_well_when_it_warns(ok: bool, warning: bool, told: str) -> None:
    assert summary([Check("store", "sqlite", ok, "3.40", warning=warning)]) == told


def test_a_worker_that_did_not_begin_says_why_and_no_more(jobs) -> None:
    begun, why = jobs("work", "jobs", "--handler", "nowhere:handle").stderr.splitlines()
    assert begun.startswith("working on jobs ")
    assert "nowhere" in why
    for options in (["--handler", "charge"], ["--handler", "os:getcwd", "--on-error", "choose"]):
        (why,) = jobs("work", "jobs", *options).stderr.splitlines()
        assert "names no function: give it as 'package.module:function'" in why


def test_messages_are_looked_at_and_removed_by_their_ids(jobs) -> None:
    ids = jobs.ok("send", "jobs", "one", "two").stdout.split()
    assert jobs.ok("get", ids[0]).stdout == "one\n"
    assert jobs.json("get", ids[1])["body"] == "two"
    assert all(found in jobs.ok("peek", "jobs").stdout for found in ids)
    assert len(jobs.lines("peek", "jobs", "--limit", "1")) == 1
    assert jobs.json("remove", ids[0]) == {"removed": 1, "missing": []}
    gone = jobs("remove", *ids)
    assert gone.exit_code == 3
    missing = jobs("get", ids[0])
    assert (missing.exit_code, f"`shardq trace {ids[0]}`" in missing.stderr) == (3, True)


def test_a_paused_queue_refuses_and_a_resumed_one_does_not(jobs) -> None:
    jobs.ok("pause", "jobs", "--only-sends")
    assert jobs("send", "jobs", "x").stderr.startswith("shardq: queue_paused: ")
    jobs.ok("resume", "jobs")
    jobs.ok("send", "jobs", "x")
    jobs.ok("pause", "jobs")
    assert jobs.ok("receive", "jobs").stdout == ""


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ((), "delivers no messages and still accepts new ones"),
        (("--sends",), "delivers no messages and accepts no new ones"),
        (("--only-sends",), "still delivers and accepts no new ones"),
    ],
)
def test_pausing_says_what_is_paused_now(jobs, options: tuple[str, ...], state: str) -> None:
    assert state in jobs.ok("pause", "jobs", *options).stderr


def test_receive_says_when_it_finds_nothing_because_the_queue_is_paused(jobs) -> None:
    assert jobs.ok("receive", "jobs").stderr == ""
    jobs.ok("pause", "jobs")
    assert "it is paused" in jobs.ok("receive", "jobs").stderr


@pytest.mark.parametrize("options", [("--no-ack", "--pop"), ("--ack", "--no-ack"), ("--ack", "--pop")])
def test_receive_takes_one_way_to_settle_and_receives_nothing_otherwise(
    jobs, options: tuple[str, ...]
) -> None:
    jobs.ok("send", "jobs", "a")
    assert jobs("receive", "jobs", *options).exit_code == 2
    assert jobs.json("stats", "jobs")["ready"] == 1


@pytest.mark.parametrize("command", [("receive", "--no-ack"), ("receive", "--no-ack", "--json"), ("peek",)])
def test_a_body_that_the_codec_cannot_read_is_told_with_the_message_and_a_remedy(
    jobs, command: tuple[str, ...]
) -> None:
    identity = jobs.ok("send", "jobs", "no json").stdout.strip()
    name, *options = command
    told = jobs(name, "jobs", "--codec", "json", *options)
    assert identity in told.stderr
    assert "without --codec" in told.stderr


def test_the_defaults_of_settings_are_shown_where_they_hold(shell) -> None:
    assert "[300]" in shell.ok("create", "--help").stdout
    assert "[300]" not in shell.ok("alter", "--help").stdout


def test_redriving_a_dead_letter_queue_says_which_queue_to_give(jobs) -> None:
    for options in ([], ["--reason", "x"]):
        refused = jobs("redrive", "jobs.dead", *options)
        assert (refused.exit_code, "`shardq redrive jobs` moves" in refused.stderr) == (3, True)
    assert "came from" not in jobs.ok("redrive", "jobs").stderr
    assert jobs.ok("list").stdout.split() == ["jobs", "jobs.dead"]


def test_a_name_of_those_that_shardq_makes_for_itself_is_refused(jobs) -> None:
    refused = jobs("create", "_shardq/topics/orders/mail")
    assert (refused.exit_code, "makes for itself" in refused.stderr) == (2, True)
    missing = jobs("stats", "_shardq/topics/orders/mail")
    assert (missing.exit_code, "shardq subscription list" in missing.stderr) == (3, True)


def test_a_queue_of_a_file_that_is_not_there_is_told_as_that(shell, tmp_path: Path) -> None:
    shell.url = f"sqlite:///{tmp_path}/typo.db"
    told = shell("stats", "jobs")
    assert (told.exit_code, "typo.db does not exist" in told.stderr) == (3, True)


def test_a_dash_is_no_file_of_lines(jobs) -> None:
    refused = jobs("send", "jobs", "--file", "-")
    assert (refused.exit_code, "`shardq send QUEUE -`" in refused.stderr) == (2, True)


def test_who_deletes_a_queue_is_told_of_its_schedules(jobs) -> None:
    jobs.ok("schedule", "create", "tick", "jobs", "--every", "2s")
    jobs.ok("schedule", "create", "tick", "jobs", "--every", "2s", "--exist-ok")
    assert "with 0 messages and 1 schedule?" in jobs("delete", "jobs", stdin="n\n").stderr


def test_a_suggestion_ends_as_a_question(shell) -> None:
    assert "Did you mean 'send'? See " in shell("snd").stderr


def test_a_note_of_the_doctor_is_shown_unless_it_is_quiet_and_changes_nothing_else(
    shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.51.2")
    shell.url = f"sqlite:///{tmp_path}/sound.db"
    shell.ok("create", "jobs")
    told = shell("doctor")
    assert [line.split()[:3] for line in told.stdout.splitlines() if not line.startswith("ok")] == [
        ["note", "store", "sqlite"]
    ]
    assert "use SQLite 3.51.3" in told.stdout
    assert told.exit_code == 0
    quiet = shell("doctor", "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", told.stderr)
    assert told.stderr.endswith("all is well\n")


def test_a_warning_of_the_doctor_is_no_failure_and_shown_by_a_quiet_one_too(shell, tmp_path: Path) -> None:
    path = tmp_path / "sound.db"
    shell.url = f"sqlite:///{path}"
    shell.ok("create", "jobs")
    with shardq.connect(
        shell.url, clock=ManualClock(from_datetime(datetime.now(UTC) + timedelta(days=1)))
    ) as ahead:
        ahead.queue("jobs").producer().send(b"x")
    quiet = shell("doctor", "--quiet")
    assert [line.split()[:2] for line in quiet.stdout.splitlines()] == [["warning", "jobs"]]
    assert quiet.exit_code == 0
    assert quiet.stderr.endswith(", 1 warning\n")


def test_a_header_in_a_line_that_is_no_value_is_told_with_the_forms_that_are(jobs) -> None:
    line = '{"body": "a", "headers": {"a": {"b": 1}}}'
    assert '{"base64": ...}' in jobs("send", "jobs", "--jsonl", line).stderr


def test_a_message_that_is_too_large_is_told_by_its_line_or_argument(jobs) -> None:
    jobs.ok("alter", "jobs", "--max-message-bytes", "10")
    large = "y" * 11
    assert "argument 2: message of 11 bytes" in jobs("send", "jobs", "x", large).stderr
    lines = "x\n\n" * 600 + large + "\nx\n"
    told = jobs("send", "jobs", "-", "--quiet", stdin=lines)
    assert "500 messages stored" in told.stderr
    assert "line 1201: message of 11 bytes" in told.stderr


def test_a_usage_error_ends_with_a_full_stop_before_the_way_to_the_help(shell) -> None:
    assert "extra argument (b). See `" in shell("create", "a", "b").stderr


def test_history_is_shown_and_replayed(jobs) -> None:
    assert "keeps no history" in jobs.ok("history", "jobs").stderr
    assert "keeps no history" in jobs.ok("history", "jobs", "--replay").stderr
    jobs.ok("alter", "jobs", "--history-retention", "1h")
    jobs.ok("send", "jobs", "a", "b")
    jobs.ok("receive", "jobs", "-n", "2")
    assert [message["state"] for message in jobs.lines("history", "jobs", "--since", "10m")] == [
        "processed"
    ] * 2
    assert len(jobs.lines("history", "jobs", "--limit", "1")) == 1
    assert len(jobs.lines("history", "jobs", "--limit", str(10**20))) == 2
    assert jobs.lines("history", "jobs", "--until", "2020-01-01") == []
    jobs.ok("create", "other")
    assert jobs.json("history", "jobs", "--replay", "--to", "other") == {"replayed": 2, "to": "other"}
    assert jobs.json("stats", "other")["ready"] == 2


@pytest.mark.parametrize("interval", ["nan", "inf", "-1", "1e18", "999999999999999d"])
def test_a_time_between_two_counts_that_nobody_waits_for_is_refused(jobs, interval: str) -> None:
    refused = jobs("stats", "jobs", "--watch", "--interval", interval)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "interval=" in refused.stderr
    assert "is out of range: give 0 to 604800" in refused.stderr


def test_stats_show_the_shards_as_a_heat_map(jobs) -> None:
    jobs.ok("send", "jobs", "a")
    assert len(jobs.json("stats", "jobs", "--shards")["shards"]) == 1
    picture = jobs.ok("stats", "jobs", "--shards").stdout
    assert "█" in picture
    assert "▼ now" in picture


def test_the_heat_map_has_one_column_for_all_groups_and_a_line_for_each_shard(jobs) -> None:
    jobs.ok("alter", "jobs", "--time-shards", "200")
    jobs.ok("send", "jobs", "a", "b", "--group", "one")
    _, *lines, legend = jobs.ok("stats", "jobs", "--shards").stdout.partition("now")[2].splitlines()
    assert 2 <= len(lines) <= 16
    assert {len(line) for line in lines} == {5 + 200 + 3}
    assert [line[-1] for line in lines].count("█") == 1
    assert "groups" in legend


def test_doctor_finds_what_is_wrong_and_says_how_to_mend_it(
    jobs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a file that waits for the disk, whatever SQLite and file system the machine has
    jobs.url = url = url.partition("?")[0]
    monkeypatch.setattr("sqlite3.sqlite_version", "3.51.3")
    monkeypatch.setattr("shardq.storage.sqlite.diagnosis.check_file_system", lambda _: ())
    jobs.ok("send", "jobs", "x")
    well = jobs.json("doctor")
    assert well["ok"]
    with shardq.connect(url) as client, client.queue("jobs").consumer() as consumer:
        consumer.receive(1)[0].dead_letter("bad")
    jobs.ok("create", "small", "--time-shard-seconds", "1", "--max-deliveries", "2")
    jobs.ok("delete", "small.dead", "--yes")
    jobs.ok("pause", "jobs", "--sends")
    ill = jobs("doctor", "--json")
    assert ill.exit_code == 1
    wrong = {
        (check["subject"], check["name"]): check["remedy"]
        for check in json.loads(ill.stdout)["checks"]
        if not check["ok"]
    }
    assert set(wrong) == {
        ("jobs", "delivery"), ("jobs", "sends"), ("jobs", "dead letters"), ("small", "dead letters"),
    }  # fmt: skip
    assert all(wrong.values())
    assert "redrive jobs" in jobs("doctor", "jobs").stdout
    jobs.ok("resume", "jobs")
    assert jobs.json("redrive", "jobs", "--limit", "5") == {"redriven": 1}


def test_a_visibility_timeout_longer_than_a_lap_is_a_warning_whose_remedy_works(jobs) -> None:
    jobs.ok("create", "slow", "--visibility-timeout", "1h", "--time-shards", "7")

    def ring() -> dict[str, Any]:
        told = jobs("doctor", "slow", "--json")
        (found,) = (check for check in json.loads(told.stdout)["checks"] if check["name"] == "ring")
        return found

    assert (ring()["ok"], ring()["warning"]) == (True, True)
    jobs.ok(*ring()["remedy"].split()[1:])
    assert (ring()["ok"], ring()["warning"]) == (True, False)


@pytest.mark.parametrize("ends", [True, False])
def test_the_doctor_waits_for_who_writes_and_tells_a_lock_from_a_file_that_cannot_be_written(
    jobs, url: str, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    monkeypatch.setattr("shardq.storage.sqlite.diagnosis._PATIENCE_MS", 60_000 if ends else 1)
    path = url.removeprefix("sqlite:///").partition("?")[0]
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.5, other.execute, ["ROLLBACK"])
        if ends:
            end.start()
        checks = json.loads(jobs("doctor", "--json").stdout)["checks"]
        if ends:
            end.join()
    (found,) = (each for each in checks if each["name"] == "writable")
    assert found["ok"] is ends
    if not ends:
        assert "locked" in found["value"]
        assert "keeps a transaction open" in found["remedy"]


def test_doctor_says_that_there_is_no_file_yet(shell) -> None:
    assert shell("doctor").exit_code == 1


@pytest.mark.parametrize("queue", [(), ("jobs",)])
def test_doctor_tells_a_store_that_is_not_reached_from_one_with_defects(
    shell, tmp_path: Path, queue: tuple[str, ...]
) -> None:
    (tmp_path / "queue.db").write_text("this is no database\n" * 100)
    told = shell("doctor", *queue)
    assert told.exit_code == 4
    assert "WRONG" in told.stdout


def test_the_schema_is_printed_and_applied(shell) -> None:
    assert "CREATE TABLE" in shell.ok("schema", "print", "--store", "sqlite").stdout
    assert shell.json("schema", "print")["migrations"][0]["number"] == 1
    assert shell("schema", "print", "--store", "../sqlite").exit_code == 2
    shell.ok("schema", "apply")
    assert shell.ok("list").stdout == ""


def test_queues_with_odd_names_are_used_as_any_others(shell) -> None:
    name = "shop/eu-1/orders@v2"
    shell.ok("create", name)
    shell.ok("create", "shop/eu-1/letters", "--max-deliveries", "none")
    shell.ok("send", name, "tea")
    assert shell.ok("list", "shop/eu-1/orders").stdout.split() == [name, f"{name}.dead"]
    (message,) = shell.lines("receive", name, "--no-ack")
    shell.ok("release", name, message["receipt"])
    assert shell.ok("get", message["id"]).stdout == "tea\n"
    failed = shell("create", "x" * 200)
    assert failed.exit_code == 2
    assert "dead_letter_queue" in failed.stderr


def test_completion_scripts_name_the_program(shell) -> None:
    for name in ("bash", "zsh", "fish"):
        assert "_SHARDQ_COMPLETE" in shell.ok("completion", name).stdout


@pytest.mark.parametrize("threads", [(), ("--threads", "3")], ids=["one thread", "several"])
def test_work_runs_a_command_and_reports(jobs, threads: tuple[str, ...]) -> None:
    jobs.ok("send", "jobs", "a", "b", "c")
    report = jobs.json("work", "jobs", "--exec", "grep -q '[ab]'", "--idle-exit", "0.2", *threads)
    assert (report["total"]["worked"], report["total"]["dead_lettered"]) == (2, 1)
    assert jobs("work", "jobs").exit_code == 2
    assert jobs("work", "jobs", "--handler", "nowhere:f").exit_code == 2


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [("true", ["--fail-on-error"], 0), ("false", [], 0), ("false", ["--fail-on-error"], 1)],
)
def test_work_fails_on_request_when_a_message_failed(
    jobs, command: str, options: list[str], code: int
) -> None:
    jobs.ok("send", "jobs", "a")
    result = jobs("work", "jobs", "--exec", command, "--idle-exit", "0", "--json", *options)
    assert result.exit_code == code
    assert json.loads(result.stdout)["total"]["failed"] == (command == "false")


def test_work_fails_on_request_when_a_process_died(jobs) -> None:
    jobs.ok("send", "jobs", "a")
    result = jobs("work", "jobs", "--exec", "kill -9 $PPID", "--idle-exit", "0", "--json", "--fail-on-error")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["restarts"], report["total"]["failed"]) == (1, 1, 0)


def test_work_takes_several_queues_with_a_handler_each(
    shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "posts.py").write_text(
        "def keep(message): open('kept', 'a').write(f'{message.queue} ')\ndef hurry(message): open('now', 'w')\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("urgent", "usual"):
        shell.ok("create", name)
        shell.ok("send", name, "x")
    work = ["work", "urgent", "usual", "--idle-exit", "0.2"]
    assert shell(*work, "--handler", "posts:keep", "--handler", "posts:hurry").exit_code == 2
    assert shell(*work, "--handler", "urgent=posts:keep").exit_code == 2
    assert shell(*work, "--handler", "posts:keep", "--handler", "letters=posts:keep").exit_code == 2
    assert shell(*work, "--exec", "true", "--weight", "urgent=much").exit_code == 2
    given = ("--handler", "posts:keep", "--handler", "urgent=posts:hurry", "--weight", "urgent=2")
    assert shell.json(*work, *given)["total"]["worked"] == 2
    assert ((tmp_path / "kept").read_text(), (tmp_path / "now").exists()) == ("usual ", True)
    shell.ok("send", "urgent", "x")
    shell.ok("send", "usual", "x")
    shell.ok("work", "urgent", "usual", "--exec", "echo $SHARDQ_QUEUE >> told", "--idle-exit", "0.2")
    assert sorted((tmp_path / "told").read_text().split()) == ["urgent", "usual"]


@pytest.mark.parametrize("group", ["schema", "spark"])
def test_without_a_command_the_help_is_shown_line_by_line(shell, group: str) -> None:
    bare = shell(group)
    assert (bare.exit_code, bare.stdout) == (2, "")
    assert bare.stderr.strip() == shell.ok(group, "--help").stdout.strip()


def test_one_dedupe_key_for_several_bodies_is_refused(jobs) -> None:
    before = jobs.json("stats", "jobs")["ready"]
    refused = jobs("send", "jobs", "a", "b", "--dedupe-key", "k")
    assert (refused.exit_code, "dedupe_key in the lines" in refused.stderr) == (2, True)
    assert jobs.json("stats", "jobs")["ready"] == before


@pytest.mark.parametrize("moment", ["yesterday", 1.7e9, datetime(2026, 1, 1)])
def test_a_period_that_is_no_aware_datetime_is_refused(tmp_path: Path, moment: object) -> None:
    with shardq.connect(f"sqlite:///{tmp_path / 'q.db'}") as client:
        queue = client.create_queue("jobs")
        with pytest.raises(shardq.InvalidSetting, match="aware datetime"):
            list(queue.history(since=moment))  # type: ignore[arg-type]


def test_a_message_is_sent_looked_at_and_removed_by_its_unique_key(jobs) -> None:
    first = jobs.ok("send", "jobs", "one", "--unique-key", "k").stdout
    assert jobs.ok("send", "jobs", "two", "--unique-key", "k").stdout == first
    refused = jobs("send", "jobs", "three", "--unique-key", "k", "--on-conflict", "raise")
    assert (refused.exit_code, refused.stderr.startswith("shardq: unique_key_taken: ")) == (1, True)
    line = json.dumps({"body": "four", "unique_key": "k", "on_conflict": "replace"})
    second = jobs.ok("send", "jobs", "-", "--jsonl", stdin=line).stdout
    assert second != first
    assert jobs.ok("get", "jobs", "--unique-key", "k").stdout == "four\n"
    assert jobs.json("get", "jobs", "--unique-key", "k")["unique_key"] == "k"
    assert "1 message removed" in jobs.ok("remove", "jobs", "--unique-key", "k").stderr
    assert jobs("remove", "jobs", "--unique-key", "k").exit_code == 3
    gone = jobs("get", "jobs", "--unique-key", "k")
    assert (gone.exit_code, "with the key 'k' in queue jobs" in gone.stderr) == (3, True)
    assert jobs("remove", "jobs", "jobs", "--unique-key", "k").exit_code == 2
    assert jobs("send", "jobs", "a", "b", "--unique-key", "k").exit_code == 2
    assert jobs("send", "jobs", "a", "--on-conflict", "replace").exit_code == 2


def test_messages_that_were_not_sent_are_kept_with_their_unique_keys(jobs, tmp_path) -> None:
    jobs.ok("send", "jobs", "one", "--unique-key", "k")
    lines = [{"body": "two", "unique_key": "k", "on_conflict": "raise"}, {"body": "three"}]
    rest = tmp_path / "rest.jsonl"
    stdin = "\n".join(map(json.dumps, lines))
    assert jobs("send", "jobs", "-", "--jsonl", "--unsent", str(rest), stdin=stdin).exit_code == 1
    assert json.loads(rest.read_text().splitlines()[0])["on_conflict"] == "raise"


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("options", "acks"), [((), True), (("--no-ack",), False), (("--json",), True)])
def test_a_body_that_the_codec_cannot_read_holds_up_neither_what_stands_before_it_nor_behind(
    jobs, options: tuple[str, ...], acks: bool, place: int
) -> None:
    # Given a body that is not JSON among three
    bodies = ["1", "2", "3"]
    bodies[place] = "no json"
    jobs.ok("create", "one", "--shards", "1", "--time-shards", "1")
    jobs.ok("send", "one", *bodies)
    # When they are received as JSON
    told = jobs("receive", "one", "--limit", "9", "--codec", "json", *options)
    # Then those before it are printed and settled, and those behind it are there as if they had not been received
    assert (told.exit_code, len(told.stdout.splitlines())) == (2, place)
    left = jobs.json("stats", "one")
    assert (left["in_flight"], left["ready"]) == (1 if acks else place + 1, 2 - place)
    again = jobs("receive", "one", "--limit", "9", "--no-ack", "--json").stdout
    assert [json.loads(line)["deliveries"] for line in again.splitlines()] == [1] * (2 - place)


POPPED = [json.dumps("good"), "no json", "\n", json.dumps("also good")]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), ['"good"', "no json", "", "", '"also good"']),
        (("--receipts",), ['"good"', "no json", r"\n", '"also good"']),
    ],
)
def test_what_is_popped_is_printed_though_the_codec_cannot_read_it(
    jobs, options: tuple[str, ...], shown: list[str]
) -> None:
    # Given bodies of which two are no JSON
    ids = jobs.ok("send", "jobs", *POPPED, "--group", "g").stdout.split()
    # When they are popped as JSON
    told = jobs("receive", "jobs", "--pop", "--limit", "9", "--codec", "json", *options)
    # Then all that is acked is printed, those as they are, and who runs it learns which these are
    assert [line.rpartition("\t")[2] for line in told.stdout.splitlines()] == shown
    assert told.exit_code == 2
    assert [identity in told.stderr for identity in ids] == [False, True, True, False]
    assert jobs.json("stats", "jobs")["ready"] == 0


@pytest.mark.parametrize("codec", ["json", "msgpack", "text"])
def test_what_is_popped_and_cannot_be_read_is_sent_again_as_it_was(jobs, codec: str) -> None:
    bodies = [b"\xff\xfe", b"\xc1 no msgpack"]
    lines = b"\n".join(json.dumps({"body_base64": b64encode(body).decode()}).encode() for body in bodies)
    jobs.ok("send", "jobs", "-", "--jsonl", "--group", "g", stdin=lines)
    popped = jobs("receive", "jobs", "--pop", "--limit", "9", "--codec", codec, "--json")
    assert (popped.exit_code, len(popped.stdout.splitlines())) == (2, 2)
    jobs.ok("send", "jobs", "-", "--jsonl", "--codec", codec, stdin=popped.stdout)
    assert jobs.ok("receive", "jobs", "--limit", "9").stdout_bytes == b"".join(b + b"\n" for b in bodies)


def test_what_is_popped_is_written_to_a_file_as_it_is_if_the_codec_cannot_read_it(
    jobs, tmp_path: Path
) -> None:
    jobs.ok("send", "jobs", "no json")
    assert jobs("receive", "jobs", "--pop", "--codec", "json", "--output", "copy").exit_code == 2
    assert (tmp_path / "copy").read_bytes() == b"no json"


@pytest.mark.parametrize("quiet", [False, True])
def test_json_of_a_send_tells_what_is_not_stored(jobs, quiet: bool) -> None:
    jobs.ok("alter", "jobs", "--max-message-bytes", "10")
    # When the fourth line is no message, and more lines follow
    stdin = '{"body":"a"}\n\n{"body":"b"}\nno message\n{"body":"c"}\n'
    failed = jobs("send", "jobs", "-", "--jsonl", "--json", *["--quiet"] * quiet, stdin=stdin)
    # Then it and all after it are not stored
    told = json.loads(failed.stdout)
    assert (told["sent"], told["unsent"], told["unsent_after"]) == (2, [4], 4)
    assert "line 4" in told["error"]
    assert " ".join(told["error"].split()) in failed.stderr
    assert ("ids" in told) is not quiet


def test_json_of_a_send_has_nothing_that_is_not_stored_if_all_is(jobs) -> None:
    assert {"error", "unsent", "unsent_after"}.isdisjoint(jobs.json("send", "jobs", "a", "b"))


def test_json_of_a_send_tells_which_lines_of_those_that_were_read_together_are_not_stored(jobs) -> None:
    # Given a key that is taken, and a line that insists on it between others
    jobs.ok("send", "jobs", "first", "--unique-key", "k")
    taken = {"body": "b", "unique_key": "k", "on_conflict": "raise"}
    lines = [{"body": "a"}, taken, {"body": "c"}]
    # When they are sent together
    failed = jobs(
        "send", "jobs", "-", "--jsonl", "--json", stdin="".join(f"{json.dumps(line)}\n" for line in lines)
    )
    # Then those that are not stored are told by their numbers
    told = json.loads(failed.stdout)
    stored = {message["body"] for message in jobs.lines("peek", "jobs")} - {"first"}
    assert stored == {"a", "c"}
    assert (told["sent"], told["unsent"], told["unsent_after"]) == (2, [2], 3)
