"""The health of workers: probes, the heartbeat file, and messages to systemd."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shardq
from shardq.metrics import monitor as monitoring
from shardq.metrics.monitor import Monitor, MonitorOptions, PoolState
from shardq.metrics.pages import Answer, PageServer
from shardq.worker import WorkerOptions, slot
from tests.processes import eventually, running
from tests.terminal import PROGRAM

AT_WORK = PoolState(2, 0, 0, stopping=False)


def asked(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@contextmanager
def monitored(url: str) -> Iterator[tuple[Monitor, int]]:
    with Monitor(url, MonitorOptions(health_port=0)) as monitor:
        yield monitor, monitor.ports[0]


def test_a_pool_is_live_and_ready_while_its_loop_runs_and_the_store_answers(
    url: str, queue: shardq.Queue
) -> None:
    with monitored(url) as (monitor, port):
        assert asked(port, "/readyz?verbose") == (503, "no process was started yet\n")
        monitor.beat(AT_WORK)
        assert asked(port, "/livez") == (200, "ok\n")
        assert asked(port, "/readyz") == (200, "ok\n")
        monitor.beat(PoolState(2, 0, 0, stopping=True))
        assert asked(port, "/livez") == (200, "ok\n")
        assert asked(port, "/readyz?verbose") == (503, "the pool is ending\n")


def test_an_unreachable_store_makes_a_pool_unready_and_never_dead(tmp_path: Path) -> None:
    with monitored(f"sqlite:///{tmp_path}/missing/queue.db") as (monitor, port):
        monitor.beat(AT_WORK)
        status, why = asked(port, "/readyz?verbose")
        assert (status, "missing" in why) == (503, True)
        assert asked(port, "/readyz") == (503, "failed\n")
        assert asked(port, "/livez") == (200, "ok\n")


def test_the_reason_why_the_store_does_not_answer_has_no_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise shardq.StoreUnavailable("mongodb://ada:secret@db/queues does not answer")

    monkeypatch.setattr(monitoring, "connect", refuse)
    with monitored(url) as (monitor, port):
        monitor.beat(AT_WORK)
        assert asked(port, "/readyz?verbose") == (503, "mongodb://...@db/queues does not answer\n")


def test_a_pool_whose_loop_stands_still_is_dead(
    url: str, queue: shardq.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(url) as (monitor, port):
        monitor.beat(AT_WORK)
        monkeypatch.setattr(monitoring, "LIVE_SECONDS", -1.0)
        status, why = asked(port, "/livez?verbose")
        assert status == 503
        assert why.startswith("the loop of the pool has not turned for")
        assert asked(port, "/readyz")[0] == 503


def test_one_port_for_both_has_all_pages(url: str, queue: shardq.Queue) -> None:
    with Monitor(url, MonitorOptions(health_port=0, metrics_port=0)) as monitor:
        (port,) = monitor.ports
        monitor.beat(AT_WORK)
        assert asked(port, "/livez")[0] == 200
        assert "shardq_worker_processes 2.0" in asked(port, "/metrics")[1]
        status, text = asked(port, "/etc/passwd")
        assert (status, text) == (404, "there is no such page: ask for one of /livez /metrics /readyz\n")


def test_what_asks_for_openmetrics_gets_it(url: str) -> None:
    with Monitor(url, MonitorOptions(metrics_port=0)) as monitor:
        request = urllib.request.Request(
            f"http://127.0.0.1:{monitor.ports[0]}/metrics",
            headers={"Accept": "application/openmetrics-text; version=1.0.0"},
        )
        with urllib.request.urlopen(request, timeout=30) as page:
            assert page.headers["Content-Type"].startswith("application/openmetrics-text")
            assert page.read().endswith(b"# EOF\n")


def test_the_heartbeat_file_is_touched_while_the_loop_runs_and_removed_at_the_end(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "BEAT_SECONDS", 0.0)
    file = tmp_path / "alive"
    with Monitor(url, MonitorOptions(heartbeat_file=str(file))) as monitor:
        os.utime(file, (0, 0))
        monitor.beat(AT_WORK)
        assert time.time() - file.stat().st_mtime < 3600
        assert file.read_text() == f"{os.getpid()}\n"
    assert not file.exists()


def test_a_pool_that_cannot_start_leaves_the_heartbeat_file_of_another(url: str, tmp_path: Path) -> None:
    file = tmp_path / "alive"
    file.write_text("1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = MonitorOptions(health_port=taken.getsockname()[1], heartbeat_file=str(file))
        with pytest.raises(shardq.InvalidSetting):
            Monitor(url, options).__enter__()
    assert file.read_text() == "1\n"


def test_a_pool_that_ends_leaves_the_heartbeat_file_of_its_successor(url: str, tmp_path: Path) -> None:
    file = tmp_path / "alive"
    with Monitor(url, MonitorOptions(heartbeat_file=str(file))):
        file.write_text("1\n")
    assert file.read_text() == "1\n"


def test_systemd_is_notified_that_the_pool_is_ready_runs_and_ends(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "BEAT_SECONDS", 0.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with Monitor(url, MonitorOptions()) as monitor:
            monitor.beat(AT_WORK)
            monitor.beat(AT_WORK)
        told = [systemd.recv(100) for _ in range(4)]
    assert told == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_slow_client_is_broken_off_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardq.metrics.pages.REQUEST_SECONDS", 0.5)
    with (
        PageServer("127.0.0.1", 0, {"/livez": lambda *_: Answer(200, b"ok\n")}) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow,
    ):
        slow.sendall(b"GET /livez HTTP/1.1\r\n")
        assert asked(server.port, "/livez") == (200, "ok\n")
        with pytest.raises(OSError):  # not after all that it may send: a byte at a time, that is an hour
            for _ in range(600):
                slow.sendall(b"x")
                time.sleep(0.05)


def test_more_connections_than_allowed_are_closed_at_once() -> None:
    with PageServer("127.0.0.1", 0, {"/livez": lambda *_: Answer(200, b"ok\n")}) as server:
        held = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(32)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as further:
            assert further.recv(100) == b""
        for each in held:
            each.close()
        assert eventually(lambda: _answers(server.port))


def _answers(port: int) -> bool:
    try:
        return asked(port, "/livez")[0] == 200
    except OSError:
        return False


def test_no_request_fails_the_server(url: str) -> None:
    with monitored(url) as (_, port):
        for line in (
            b"GET",
            b"GET /livez HTTP/9.9",
            b"\xff\xfe\r\n",
            b"POST /livez HTTP/1.1",
            b"GET //[ HTTP/1.1",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(line + b"\r\n\r\n")
                answer = client.recv(1000)
                assert b" 500 " not in answer
        assert asked(port, "/livez")[0] == 200


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"health_port": 70_000}, "health_port=70000 is out of range: give 0 to 65535"),
        ({"metrics_port": "http"}, "metrics_port='http' is a str: give a whole number"),
        (
            {"heartbeat_file": "/missing/alive"},
            "heartbeat_file='/missing/alive' cannot be written (No such file",
        ),
        ({"heartbeat_file": "/"}, "heartbeat_file='/' cannot be written (Is a directory): give another path"),
        ({"host": "nowhere.invalid", "health_port": 0}, "address 'nowhere.invalid', port 0 cannot be used"),
        ({"host": "a" * 90 + ".b", "health_port": 0}, "cannot be used (encoding with 'idna' codec failed"),
    ],
    ids=["port", "type", "folder", "directory", "host", "label"],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], error: str) -> None:
    with pytest.raises(shardq.InvalidSetting) as raised, Monitor("memory://", MonitorOptions(**options)):  # type: ignore[arg-type]
        pass
    assert error in str(raised.value)


def test_a_page_that_fails_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_query: str, _accept: str) -> Answer:
        raise ValueError("a collector of the application")

    with PageServer("127.0.0.1", 0, {"/metrics": fail}) as server:
        assert asked(server.port, "/metrics") == (500, "failed\n")
    assert "a collector of the application" in caplog.text


def test_a_port_that_is_taken_is_named(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(shardq.InvalidSetting, match=f"port {port} cannot be used .*: give an address"):
            Monitor(url, MonitorOptions(health_port=port)).__enter__()


def test_the_command_answers_probes_and_scrapes(url: str, queue: shardq.Queue, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    alive = tmp_path / "alive"
    options = ["--metrics-port", str(port), "--health-port", str(port), "--heartbeat-file", str(alive)]
    queue.producer().send(b"x")
    command = [PROGRAM, "--url", url, "work", "orders", "--exec", "true", "--json", *options]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert eventually(lambda: _is_worked(port))
        assert asked(port, "/livez") == asked(port, "/readyz") == (200, "ok\n")
        assert alive.exists()
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate(timeout=60)
    assert json.loads(output)["total"]["worked"] == 1
    assert worker.returncode == 0


def _is_worked(port: int) -> bool:
    try:
        return 'shardq_messages_acked_total{queue="orders"} 1.0' in asked(port, "/metrics")[1]
    except OSError:
        return False


def test_processes_that_cannot_begin_as_the_store_is_unreachable_are_started_again_and_again(
    url: str, queue: shardq.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    monkeypatch.setattr(slot, "PAUSES", shardq.Backoff(0.01, 0.01))
    queue.producer().send(b"x")
    plan = importlib.import_module("handlers_that_die").UnreachablePlan(
        url=url,
        handlers={"orders": "handlers_that_die:die_at_the_end"},
        options=WorkerOptions(idle_exit=0),
        marker=str(tmp_path / "attempts"),
    )
    worker = slot.Slot(plan, "worker", max_restarts=0)
    while not worker.finished:
        worker.start_if_due()
        worker.supervise(None)
        time.sleep(0.02)
    assert worker.restarts == 3
    assert worker.report.worked == 1
