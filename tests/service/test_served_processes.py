"""The service as processes: how they begin and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest

import shardq
from shardq.service import KeyFile
from tests.service.serving import serving


def _get(address: str) -> str:
    with urllib.request.urlopen(
        address, timeout=30
    ) as answer:  # the socket is bound: it waits for the process
        return answer.read().decode()


@pytest.mark.parametrize(
    "options", [("serve", "--ui"), ("serve", "--ui", "--processes", "2"), ("ui", "--no-browser")]
)
def test_a_service_ends_at_once_when_it_is_told_to_although_pages_listen(url, tmp_path, options) -> None:
    shardq.connect(url).create_queue("orders")
    with serving(url, tmp_path, *options) as (process, address):
        assert _get(f"{address}/readyz") == "ok\n"
        with urllib.request.urlopen(f"{address}/events", timeout=30) as events:
            assert events.readline() == b"retry: 3000\n"
            os.kill(process.pid, signal.SIGTERM)
            assert events.read().count(b"event") <= 5
        assert process.wait(30) == 0


def test_the_stream_of_a_revoked_key_ends(url, tmp_path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.create("ops", "read")
    options = ("serve", "--ui", "--keys", str(keys.path))
    with serving(url, tmp_path, *options) as (_, address):
        asked = urllib.request.Request(f"{address}/events", headers={"authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asked, timeout=30) as events:
            assert events.readline() == b"retry: 3000\n"
            keys.revoke(keys.keys()[0].id)
            assert events.read().count(b"event: tick") <= 1  # else it does not end


def test_its_processes_end_when_the_first_one_is_killed(url, tmp_path) -> None:
    with serving(url, tmp_path, "serve", "--processes", "2") as (process, address):
        _get(f"{address}/livez")
        others = psutil.Process(process.pid).children()
        process.kill()
        _, left = psutil.wait_procs(others, timeout=30)
        for each in left:
            each.kill()
        assert left == []


def test_the_audit_log_goes_on_in_a_new_file_when_it_was_rotated(url, tmp_path) -> None:
    log = tmp_path / "audit.log"
    with serving(url, tmp_path, "serve", "--audit-log", str(log)) as (_, address):
        for name in ("a", "b"):
            data = json.dumps({"name": name}).encode()
            asked = urllib.request.Request(
                f"{address}/api/v1/queues", data, {"content-type": "application/json"}
            )
            urllib.request.urlopen(asked, timeout=30).close()
            log.rename(tmp_path / f"audit.log.{name}")
    lines = [(tmp_path / f"audit.log.{name}").read_text().splitlines() for name in ("a", "b")]
    assert [json.loads(line)["given"] for (line,) in lines] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("options", [("serve",), ("ui", "--no-browser")])
def test_a_service_of_a_file_that_does_not_exist_says_so(url, tmp_path, options) -> None:
    with serving(url, tmp_path, *options) as (process, address):
        _get(f"{address}/livez")
        process.terminate()
        assert f"{tmp_path}/queue.db does not exist" in process.stderr.read()


def test_a_service_that_would_be_open_to_all_does_not_start(url, tmp_path) -> None:
    command = [sys.executable, "-m", "shardq", "--url", url, "serve", "--host", "0.0.0.0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "--insecure" in done.stderr
