"""Clients that send too much, or too slowly, do not keep others from being served."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from shardq.errors import InvalidSetting
from shardq.service import KeyFile, Service, ServiceOptions, security, serving
from shardq.service.sessions import RateLimits

API = "/api/v1"


def _statuses(web: TestClient, key: str, path: str, count: int) -> list[int]:
    return [web.get(path, headers={"authorization": f"Bearer {key}"}).status_code for _ in range(count)]


def test_a_key_beyond_its_rate_is_told_when_to_try_again(serve, keys: KeyFile, orders) -> None:
    noisy, quiet = keys.create("noisy", "read"), keys.create("quiet", "read")
    web = serve(keys=str(keys.path), rate_limit=0.01)
    assert _statuses(web, noisy, f"{API}/queues", 1) == [200]
    refused = web.get(f"{API}/queues", headers={"authorization": f"Bearer {noisy}"})
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["retryable"]) == (429, "too_many_requests", True)
    assert 50 <= int(refused.headers["retry-after"]) <= 100
    assert "noisy" in problem["detail"]
    assert _statuses(web, quiet, f"{API}/queues", 1) == [200]
    assert web.get("/livez").status_code == 200


def test_actions_beyond_the_rate_are_not_carried_out(serve, keys: KeyFile, orders) -> None:
    web = serve(keys=str(keys.path), rate_limit=0.01)
    web.headers["authorization"] = f"Bearer {keys.create('ops', 'act')}"
    answers = [web.post(f"{API}/messages/orders", json={"body": "1"}).status_code for _ in range(3)]
    assert answers == [200, 429, 429]
    assert orders.counts().ready == 1


def test_pages_of_a_session_count_for_its_key_and_say_so(serve, keys: KeyFile, orders) -> None:
    key = keys.create("ops", "read")
    ui = serve(ui=True, keys=str(keys.path), rate_limit=0.01)
    ui.post("/login", data={"key": key}, follow_redirects=False)
    missing = ui.get("/queues/missing")  # it counts once, although the page of the problem knows the key, too
    assert (missing.status_code, "ops (read)" in missing.text) == (404, True)
    page = ui.get("/queues")
    assert page.status_code == 429
    assert 50 <= int(page.headers["retry-after"]) <= 100
    assert 'id="live"' in page.text


def test_without_keys_there_is_no_limit(serve, orders) -> None:
    web = serve(rate_limit=0.01)
    assert {web.get(f"{API}/queues").status_code for _ in range(5)} == {200}


def test_keys_may_save_up_requests_for_two_seconds() -> None:
    now = 0.0
    limits = RateLimits(10, lambda: now)
    assert [limits.take("ops") for _ in range(20)] == [0] * 20
    assert limits.take("ops") == pytest.approx(0.1)
    now = 0.5
    assert [limits.take("ops") for _ in range(5)] == [0] * 5
    assert limits.take("ops") > 0
    now = 100.0
    assert [limits.take("ops") for _ in range(20)] == [0] * 20
    assert limits.take("ops") > 0


def test_keys_that_have_saved_up_all_are_forgotten() -> None:
    now = 0.0
    limits = RateLimits(10, lambda: now)
    for number in range(50_000):
        now += 0.001
        limits.take(str(number))
    assert len(limits) < 11_000


@pytest.mark.parametrize("path", [f"{API}/messages/orders", "/do/send/orders", "/events"])
@pytest.mark.parametrize(
    ("then", "status"),
    [
        (None, 408),
        ({"type": "http.request", "body": b"x" * security.MOST_BYTES, "more_body": True}, 413),
        ({"type": "http.disconnect"}, 400),
    ],
)
def test_a_body_that_does_not_end_in_time_is_refused_on_every_path(
    url: str, orders, monkeypatch, path: str, then: dict[str, Any] | None, status: int
) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.1 if then is None else 60.0)
    statuses: list[int] = []
    kind = "application/json" if path.startswith(API) else "application/x-www-form-urlencoded"
    scope = {
        "type": "http",
        "method": "GET" if path == "/events" else "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", kind.encode()), (b"content-length", b"9")],
    }
    parts = [each for each in (then, {"type": "http.request", "body": b"{", "more_body": True}) if each]

    async def receive() -> dict[str, Any]:
        if then == {"type": "http.disconnect"} and not parts:
            return then  # again, as servers answer whoever asks after it
        return parts.pop() if parts else await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        statuses.append(message.get("status", 0))

    async def main() -> None:
        service = Service(url, ServiceOptions(ui=True))
        try:
            await asyncio.wait_for(service(scope, receive, send), 30)  # type: ignore[arg-type]
        finally:
            await service.close()

    asyncio.run(main())
    assert statuses[0] == status


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /livez HTTP/1.1\r\nHost: a\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\n",
    ],
    ids=["nothing", "a part", "a part of the second one"],
)
def test_a_connection_is_closed_that_sends_no_whole_head(url: str, monkeypatch, sent: bytes) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.2)

    async def answer() -> bytes:
        config = uvicorn.Config(
            Service(url), http=serving.Connection, log_config=None, timeout_keep_alive=600
        )
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            served = asyncio.create_task(server.serve(sockets=[bound]))
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            writer.write(sent)
            try:
                return await asyncio.wait_for(reader.read(), 60)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()
                server.should_exit = True
                await served

    assert asyncio.run(answer()).count(b" 200 OK") == sent.count(b"\r\n\r\n")


def test_a_body_that_is_malformed_after_its_answer_ends_the_connection_and_no_more(url: str) -> None:
    faults: list[dict[str, Any]] = []

    async def answer() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))
        server = uvicorn.Server(uvicorn.Config(Service(url), http=serving.Connection, log_config=None))
        with socket.create_server(("127.0.0.1", 0)) as bound:
            served = asyncio.create_task(server.serve(sockets=[bound]))
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            status = await reader.readline()
            writer.write(b"no size of a chunk\r\n")
            await asyncio.wait_for(reader.read(), 60)
            writer.close()
            server.should_exit = True
            await served
        return status

    assert b" 404 " in asyncio.run(answer())
    assert faults == []


def test_a_connection_is_closed_whose_client_takes_no_answer(monkeypatch) -> None:
    monkeypatch.setattr(serving, "READ_SECONDS", 0.2)
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * 1_048_576, "more_body": True})
        ended.set()

    async def main() -> None:
        config = uvicorn.Config(app, http=serving.Connection, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as bound, socket.socket() as client:
            served = asyncio.create_task(server.serve(sockets=[bound]))
            client.connect(bound.getsockname())
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            try:
                await asyncio.wait_for(ended.wait(), 60)
            finally:
                client.close()
                server.should_exit = True
                await served

    asyncio.run(main())


@pytest.mark.parametrize("rate", [0, -1, float("nan"), 1e9])
def test_a_rate_that_is_none_is_refused(url: str, rate: float) -> None:
    with pytest.raises(InvalidSetting, match="rate_limit"):
        Service(url, ServiceOptions(rate_limit=rate))
