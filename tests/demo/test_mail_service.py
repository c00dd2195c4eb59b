"""The mail service of docs/examples/mail, on every store by its URL alone."""

from __future__ import annotations

import asyncio
import importlib
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import shardq
from shardq.tasks import TaskWorker
from tests.processes import eventually

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "mail"
PATIENCE = 60.0


class Died(Exception):
    """The process of the API has ended."""


class Smtp(socketserver.ThreadingTCPServer):
    """A mail server that notes what it takes, and refuses mails to addresses that begin with "bad"."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        self.lock = threading.Lock()
        self.taken: list[tuple[str, str]] = []
        self.connected = self.most = 0


class Session(socketserver.StreamRequestHandler):
    server: Smtp

    def handle(self) -> None:
        with self.server.lock:
            self.server.connected += 1
            self.server.most = max(self.server.most, self.server.connected)
        try:
            self._talk()
        finally:
            with self.server.lock:
                self.server.connected -= 1

    def _talk(self) -> None:
        self._say("220 ready")
        to = ""
        while line := self.rfile.readline().decode().strip():
            word = line.upper()
            if word.startswith("RCPT TO:"):
                to = line.partition("<")[2].partition(">")[0]
                self._say("550 nobody" if to.startswith("bad") else "250 ok")
            elif word == "DATA":
                self._say("354 go on")
                text = b""
                while not text.endswith(b"\r\n.\r\n"):
                    text += self.rfile.readline()
                subject = next(each for each in text.decode().splitlines() if each.startswith("Subject: "))
                with self.server.lock:
                    self.server.taken.append((to, subject.removeprefix("Subject: ")))
                threading.Event().wait(0.02)
                self._say("250 taken")
            else:
                self._say("221 bye" if word == "QUIT" else "250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def smtp() -> Iterator[Smtp]:
    with Smtp() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


# The example names its queues itself, so tests of one server cannot run at the same time.
ALONE = (pytest.mark.server, pytest.mark.xdist_group("mail service"))


@pytest.fixture(
    params=[
        None,
        pytest.param("replica_set_url", marks=ALONE),
        pytest.param("postgresql_url", marks=ALONE),
    ],
    ids=["the file of the table", "MongoDB", "PostgreSQL"],
)
def service(
    request: pytest.FixtureRequest, smtp: Smtp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    monkeypatch.setenv("MAIL_FILE", str(tmp_path / "mail.db"))
    monkeypatch.setenv("SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("SMTP_PORT", str(smtp.server_address[1]))
    if request.param:
        monkeypatch.setenv("SHARDQ_URL", request.getfixturevalue(request.param))
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    sys.modules.pop("mail_service", None)
    module = importlib.import_module("mail_service")
    _clear(module.client)
    yield module
    _clear(module.client)
    module.tasks.close()
    module.client.close()


class Api:
    """Sends requests to the service within this process, as its server would."""

    def __init__(self, service: Any) -> None:
        self._app = service.api
        asyncio.run(self._start())

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self._ask("GET", path))

    def post(self, path: str, json: dict[str, str]) -> httpx.Response:
        return asyncio.run(self._ask("POST", path, json=json))

    async def _start(self) -> None:
        async with self._app.router.lifespan_context(self._app):
            pass

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://mail") as client:
            return await client.request(method, path, **options)


def _clear(client: shardq.Client) -> None:
    for queue in ("mail", "mail.dead", "minutes", "minutes.dead"):
        if client.exists(queue):
            client.delete_queue(queue)


def test_mails_are_sent_in_order_on_eight_connections_and_failures_are_told(service: Any, smtp: Smtp) -> None:
    api = Api(service)
    with shardq.connect(service.URL) as client:
        worker = TaskWorker(service.tasks, client, threads=16)
        running = threading.Thread(target=worker.run)
        ids: dict[str, list[int]] = {}
        for number in range(6):
            for customer in "abcdefghijkl":
                to = "bad@localhost" if (customer, number) == ("a", 2) else f"{customer}@localhost"
                mail = {"customer": customer, "address": to, "subject": f"{number}", "body": "Dear customer"}
                ids.setdefault(customer, []).append(api.post("/mails", json=mail).json()["id"])
        assert api.get("/status").json() == {"waiting": 72, "dead": []}
        assert api.get(f"/mails/{ids['b'][0]}").json()["state"] == "waiting"
        assert client.schedules.get("mail-digest").every == 60
        running.start()
        try:
            service.digest.send()
            assert eventually(lambda: ("owner@localhost", "Digest") in smtp.taken)
            assert eventually(lambda: len(smtp.taken) == 72 and api.get("/status").json()["waiting"] == 0)
            assert eventually(lambda: api.get(f"/mails/{ids['a'][2]}").json()["state"] == "failed")
        finally:
            worker.stop()
            running.join(PATIENCE)
        assert {api.get(f"/mails/{each}").json()["state"] for each in ids["b"]} == {"done"}
        assert "550" in api.get("/status").json()["dead"][0]
        assert api.get("/mails/1000000").status_code == 404
    assert 1 < smtp.most <= 8
    for customer, own in ids.items():
        wanted = [f"{number}" for number in range(len(own)) if (customer, number) != ("a", 2)]
        assert [subject for to, subject in smtp.taken if to == f"{customer}@localhost"] == wanted


def test_what_a_process_has_written_and_not_sent_is_sent_with_the_next_digest(
    service: Any, smtp: Smtp, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = {"customer": "a", "address": "a@localhost", "subject": "kept", "body": "Dear customer"}

    def die(*_: object) -> None:
        raise Died

    api = Api(service)
    with monkeypatch.context() as patched, suppress(Died):
        patched.setattr(service, "send", die)
        api.post("/mails", json=mail)
    assert api.get("/mails/1").json()["state"] == "waiting"
    with shardq.connect(service.URL) as client:
        service.digest.send()
        TaskWorker(service.tasks, client, threads=0, idle_exit=0.1).run()
    assert sorted(smtp.taken) == [("a@localhost", "kept"), ("owner@localhost", "Digest")]


def test_the_example_is_as_short_as_it_is_said_to_be() -> None:
    assert len((FOLDER / "mail_service.py").read_text().splitlines()) <= 110
