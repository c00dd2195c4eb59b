"""The recipes of the documentation work."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardq
from tests.docs.pages import DOCS, blocks_in

pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")


def test_a_service_sends_within_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks_in(DOCS / "asyncio.md", 'python title="service.py"')
    names: dict[str, object] = {"__name__": "service"}
    exec(compile(block, "service.py", "exec"), names)
    with testclient.TestClient(names["app"]) as service:
        ids = [service.post("/orders", params={"what": what}).json()["id"] for what in ("tea", "milk")]
        assert service.post("/orders").status_code == 422
    with shardq.connect("sqlite:///service.db") as client:
        orders = client.queue("orders")
        assert [orders.get(each, codec=shardq.JSON).body["what"] for each in ids] == ["tea", "milk"]
