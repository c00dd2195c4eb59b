"""How many bytes a browser loads for a page, on its first visit."""

from __future__ import annotations

import json
import re

import pytest
from starlette.testclient import TestClient

import shardq
from shardq.service import Service, ServiceOptions
from shardq.service.page_contents import MOST_CELLS, MOST_COLUMNS, PAGES, heat_map
from shardq.service.views import ShardsView, ShardView
from tests.browser.shop import open_shop

MOST_BYTES = 250_000


def weight(web: TestClient, path: str) -> int:
    """Return the bytes of a page and its files as they cross the network."""
    page = web.get(path)
    assert page.status_code == 200, path
    files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
    assert files
    return sum(_transferred(web, each) for each in [path, *sorted(files)])


def _transferred(web: TestClient, path: str) -> int:
    with web.stream("GET", path) as answer:
        return sum(map(len, answer.iter_raw()))


@pytest.fixture
def web(url: str):
    with TestClient(Service(url, ServiceOptions(ui=True)), base_url="http://localhost") as web:
        yield web


def test_no_page_with_data_weighs_more_than_its_budget(web, url) -> None:
    with open_shop(url) as shop:
        paths = [shop.path(page.path) for page in PAGES if page.template != "checks"]
        weights = {path: weight(web, path) for path in [*paths, "/queues/orders?by=age"]}
        texts = {path: web.get(path).text for path in paths}
    assert {path: each for path, each in weights.items() if each > MOST_BYTES} == {}
    charts = {path for path, text in texts.items() if 'id="history"' in text or "data-queue=" in text}
    assert charts == {path for path, text in texts.items() if "uplot" in text} == {"/", "/queues/orders"}


def test_a_page_of_large_things_weighs_no_more_than_its_budget(web, url) -> None:
    with shardq.connect(url) as client:
        for number in range(60):
            client.create_queue(f"{'q' * 100}{number}", shards=1, time_shards=1)
        queue = client.create_queue("large", shards=80, time_shards=16)
        wide = {f"header-{number}": "x" * 500 for number in range(20)}
        large = json.dumps([{"a": number} for number in range(3_000)]).encode()
        message = queue.producer().send_many([large] * 60, headers=wide)[0]
    paths = ("/queues", "/queues/large", "/queues/large?by=age", "/messages/large?bodies=true")
    weights = {path: weight(web, path) for path in (*paths, f"/message/{message}?body=true")}
    assert {path: each for path, each in weights.items() if each > MOST_BYTES} == {}


@pytest.mark.parametrize(
    ("time_shards", "shards"), [(10, 80), (10_000, 1), (1, 10_000), (100, 100), (2, 640)]
)
def test_a_heat_map_has_a_limited_number_of_cells_and_the_row_that_is_written(time_shards, shards) -> None:
    written = time_shards - 1
    states = [_shard(number % time_shards, number % shards, grouped=False) for number in range(10_000)]
    states += [_shard(0, number, grouped=True) for number in range(shards)]
    view = ShardsView(
        queue="large",
        by="depth",
        shards=shards,
        time_shards=time_shards,
        time_shard_seconds=30.0,
        written=written,
        states=states,
    )
    heat = heat_map(view)
    cells = sum(len(row.cells) for row in heat.rows)
    assert MOST_CELLS // 2 < cells <= MOST_CELLS or cells == time_shards * min(shards, MOST_COLUMNS)
    assert sum(len(row.cells) for row in heat.groups) <= MOST_COLUMNS
    assert [row.label for row in heat.rows if row.written] == [str(written)]
    assert bool(heat.hidden) == (time_shards * shards > MOST_CELLS or shards > MOST_COLUMNS)


def _shard(time_shard: int, shard: int, *, grouped: bool) -> ShardView:
    return ShardView(
        time_shard=time_shard,
        shard=shard,
        grouped=grouped,
        ready=1,
        delayed=0,
        in_flight=0,
        oldest=None,
        level=1,
    )


def test_a_browser_keeps_files_of_this_version_and_asks_again_for_those_of_another(web) -> None:
    paths = re.findall(r'(?:src|href)="(/static/[^"]+)"', web.get("/").text)
    assert len(paths) == 8
    for path in paths:
        assert web.get(path).headers["cache-control"] == "max-age=31536000, immutable"
        for other in (path.partition("?")[0], path[:-1]):
            first = web.get(other)
            assert first.headers["cache-control"] == "no-cache"
            again = web.get(other, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
