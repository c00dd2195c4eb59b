"""The recipes of the documentation work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardq
from tests.docs.pages import DOCS, blocks_in

pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")


DJANGO = """
import sys
from django.conf import settings
from starlette.testclient import TestClient

settings.configure(ROOT_URLCONF="shop_asgi", ALLOWED_HOSTS=["*"], SECRET_KEY="x")
import shop_asgi

with TestClient(shop_asgi.application) as service:
    for what in sys.argv[1:]:
        answer = service.get("/orders", params={"what": what})
        assert answer.status_code == 202, answer.text
        print(answer.json()["id"])
"""


def check_orders(ids: list[str]) -> None:
    with shardq.connect("sqlite:///service.db") as client:
        orders = client.queue("orders")
        assert [orders.get(each, codec=shardq.JSON).body["what"] for each in ids] == ["tea", "milk"]


@pytest.mark.parametrize("title", ["service.py", "starlette_service.py"])
def test_a_service_sends_within_its_requests(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks_in(DOCS / "asyncio.md", f'python title="{title}"')
    names: dict[str, object] = {"__name__": "service"}
    exec(compile(block, title, "exec"), names)
    with testclient.TestClient(names["app"]) as service:
        ids = [service.post("/orders", params={"what": what}).json()["id"] for what in ("tea", "milk")]
        assert service.get("/orders").status_code == 405
    check_orders(ids)


def test_an_async_view_of_django_sends_within_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("django")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks_in(DOCS / "asyncio.md", 'python title="shop_asgi.py"')
    (tmp_path / "shop_asgi.py").write_text(block)
    (tmp_path / "serve.py").write_text(DJANGO)
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    served = subprocess.run(
        [sys.executable, "serve.py", "tea", "milk"], capture_output=True, text=True, check=False, timeout=60
    )
    assert served.returncode == 0, served.stderr[-3_000:]
    check_orders(served.stdout.split())


@pytest.fixture
def fresh_database(postgresql_url: str) -> Iterator[str]:
    """The URL of a database with the table of the service."""
    psycopg = pytest.importorskip("psycopg")
    name = f"recipe{os.urandom(5).hex()}"
    url = f"{postgresql_url.rpartition('/')[0]}/{name}"
    with psycopg.connect(postgresql_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(url) as database:
            database.execute("CREATE TABLE placed (what text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        yield url
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.server
def test_a_service_sends_in_the_transaction_of_a_request_and_works_in_its_process(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exc = pytest.importorskip("sqlalchemy.exc")
    monkeypatch.setenv("SHARDQ_URL", fresh_database)
    (block,) = blocks_in(DOCS / "asyncio.md", 'python title="shop_service.py"')
    names: dict[str, Any] = {"__name__": "shop_service"}
    exec(compile(block, "shop_service.py", "exec"), names)
    with testclient.TestClient(names["app"]) as service, shardq.connect(fresh_database) as client:
        for what in ("tea", "milk"):
            assert service.post("/orders", params={"what": what}).status_code == 202
        with pytest.raises(exc.IntegrityError):  # at the commit
            service.post("/orders", params={"what": "tea"})
        end = time.monotonic() + 60
        queue = client.queue("orders")
        while (counts := queue.counts()).ready + counts.in_flight and time.monotonic() < end:
            time.sleep(0.01)
        assert counts.ready + counts.in_flight == 0
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "pack milk", "pack tea"]
