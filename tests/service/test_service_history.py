"""The history of queues in the API and on the pages."""

from __future__ import annotations

import re

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.history import Sampler
from shardq.testing import ManualClock, ManualTimer

API = "/api/v1"


@pytest.fixture
def sampled(url: str) -> None:
    """The history of two queues, for ten minutes until now."""
    clock, timer = ManualClock(SystemClock().now() - 600_000_000), ManualTimer()
    with shardq.connect(url, clock=clock) as client:
        orders, wages = client.create_queue("orders"), client.create_queue("wages")
        with Sampler(client, timer=timer) as sampler:
            for _ in range(40):
                orders.producer().send(b"x")
                wages.producer().send_many([b"x"] * 2)
                clock.advance(15)
                timer.advance(15)
                sampler.step()


def test_the_history_of_a_queue_and_of_all_is_read_in_steps(web, sampled) -> None:
    found = web.get(f"{API}/history/orders", params={"since": 300, "points": 20}).json()
    assert (found["queue"], found["step"], len(found["points"])) == ("orders", 15.0, 21)
    assert found["incoming_estimated"]
    assert found["points"][-3]["ready"] in range(36, 41)
    total = web.get(f"{API}/history", params={"since": 300}).json()
    assert total["queue"] is None
    assert total["points"][-3]["ready"] == 3 * found["points"][-3]["ready"]


def test_several_histories_are_read_together(web, sampled) -> None:
    found = web.get(f"{API}/histories", params={"queues": "wages,orders,missing"}).json()["histories"]
    assert [each["queue"] for each in found] == ["wages", "orders", "missing"]
    assert any(point["ready"] for point in found[0]["points"])
    assert not any(point["ready"] for point in found[2]["points"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("history/missing", 404),
        ("history/_shardq/history/reports", 404),
        ("history/orders?since=1", 400),
        ("history/orders?points=0", 400),
        ("histories", 400),
    ],
)
def test_what_there_is_no_history_of_is_refused(web, orders, path: str, status: int) -> None:
    assert web.get(f"{API}/{path}").status_code == status


def test_a_key_sees_the_history_of_its_queues_only(serve, keys, sampled) -> None:
    key = keys.create("ops", "read", ("orders*",))
    web = serve(ui=True, keys=str(keys.path))
    web.headers["authorization"] = f"Bearer {key}"
    assert web.get(f"{API}/history/orders").status_code == 200
    assert web.get(f"{API}/history/wages").status_code == 404
    assert web.get(f"{API}/histories", params={"queues": "orders,wages"}).status_code == 404
    assert web.get(f"{API}/history").status_code == 403
    assert web.get("/").status_code == 200


def test_pages_have_places_for_charts_and_for_lines_of_the_busiest_queues(ui, sampled) -> None:
    page = ui.get("/queues/orders").text
    assert 'data-source="/api/v1/history/orders"' in page
    assert re.findall('data-chart="(.*?)"', page) == ["depth", "rates", "wait", "processing"]
    text = ui.get("/").text
    assert 'data-source="/api/v1/history"' in text
    assert re.findall('<svg id="line-(.*?)".*? data-queue="(.*?)"', text) == [
        ("wages", "wages"),
        ("orders", "orders"),
    ]


def test_viewers_share_a_read_of_the_history(serve, url, sampled) -> None:
    web = serve()
    first = web.get(f"{API}/history/orders").json()
    with shardq.connect(url) as client:
        for name in client.queues("_shardq/history/"):
            client.delete_queue(name)
    assert web.get(f"{API}/history/orders").json() == first
