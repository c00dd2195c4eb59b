"""The recipes of the documentation work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
