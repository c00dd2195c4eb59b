"""Values that JSON has no form for, on lines that can be sent again."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import shardq

ODD_VALUES: dict[str, Any] = {
    "bytes": {"img": b"\0\1"},
    "nan": {"x": math.nan},
    "infinity": [math.inf],
    "number as a key": {1: "a"},
    "two keys alike in JSON": {1: "a", "1": "b"},
    "true as a key": {True: 1},
    "array as a key": {(1, 2): 3},
    "ext": msgspec.msgpack.Ext(5, b"x"),
    "moment": datetime(2026, 1, 1, tzinfo=UTC),
}
PLAIN_VALUES: dict[str, Any] = {
    "map": {"a": [1, 2.0, None, True, "é"], "b": {}},
    "large numbers": [2**64 - 1, -(2**63), 1e300, -0.0, 1e16],
    "nil": None,
    "text": "a\nb",
}


@pytest.mark.parametrize("value", (ODD_VALUES | PLAIN_VALUES).values(), ids=ODD_VALUES | PLAIN_VALUES)
@pytest.mark.parametrize("command", ["receive", "peek"])
def test_the_line_of_a_value_in_messagepack_is_sent_as_the_same_bytes(
    jobs, tmp_path: Path, value: Any, command: str
) -> None:
    body = msgspec.msgpack.encode(value)
    with shardq.connect(jobs.url) as client, client.queue("jobs").producer() as producer:
        producer.send(body)
    jobs.ok("create", "other")
    printed = jobs.ok(command, "jobs", "--json", "--codec", "msgpack").stdout
    assert ("body_base64" in json.loads(printed)) == (value not in PLAIN_VALUES.values())
    jobs.ok("send", "other", "--jsonl", "-", "--codec", "msgpack", stdin=printed)
    jobs.ok("receive", "other", "--output", "copy")
    assert (tmp_path / "copy").read_bytes() == body


@pytest.mark.parametrize("command", ["receive", "peek"])
def test_a_value_that_json_cannot_hold_is_no_internal_error(jobs, command: str) -> None:
    with shardq.connect(jobs.url) as client, client.queue("jobs").producer() as producer:
        identity = producer.send(msgspec.msgpack.encode(ODD_VALUES["ext"]))
    told = jobs(command, "jobs", "--codec", "msgpack")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith(f"shardq: invalid_message: message {identity}: ")
    assert "without --codec" in told.stderr
    assert "body_base64" in jobs.lines("peek", "jobs", "--codec", "msgpack")[0]


def test_headers_of_all_kinds_are_printed_as_they_are_sent_again(jobs, tmp_path: Path) -> None:
    headers: dict[str, str | float | bytes] = {"text": "nan", "raw": b"\xff", "n": 7, "one": 1.0, "yes": True}
    headers |= {"none": math.nan, "up": math.inf, "down": -math.inf}
    with shardq.connect(jobs.url) as client, client.queue("jobs").producer() as producer:
        producer.send(b"x", headers=headers)
    jobs.ok("create", "other")
    jobs.ok("send", "other", "--jsonl", "-", stdin=jobs.ok("peek", "jobs", "--json").stdout)
    jobs.ok("pause", "other", "--sends")
    kept = ("--unsent", str(tmp_path / "rest"))
    jobs("send", "other", "--jsonl", "-", *kept, stdin=jobs.ok("peek", "jobs", "--json").stdout)
    jobs.ok("resume", "other")
    jobs.ok("send", "other", "--jsonl", "--file", str(tmp_path / "rest"))
    with shardq.connect(jobs.url) as client:
        copies = client.queue("other").peek(10)
    assert [repr(copy.headers) for copy in copies] == [repr(headers)] * 2


@pytest.mark.parametrize(
    "header", ["null", "{}", "[1]", '{"number": "7"}', '{"number": "nan", "base64": "/w=="}']
)
def test_what_is_no_value_of_a_header_is_told_as_that(jobs, header: str) -> None:
    told = jobs("send", "jobs", "--jsonl", f'{{"body": "a", "headers": {{"h": {header}}}}}')
    assert told.exit_code == 2
    assert "$.headers[" in told.stderr
