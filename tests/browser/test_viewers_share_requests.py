"""What an open page asks of the store, and that many viewers ask no more than one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2

import shardq
from shardq.service import Service, ServiceOptions
from shardq.service.page_contents import PAGES
from shardq.service.sharing import FRESH_SECONDS, SharedReads
from tests.browser.shop import open_shop


class Requests(shardq.Observer):
    """Counts requests to a store, by their kinds."""

    def __init__(self) -> None:
        self.counted = Counter[str]()

    def requests(self, store: str, operation: str) -> Callable[[float], None]:
        def note(_seconds: float) -> None:
            self.counted[operation] += 1

        return note

    def refused(self, store: str, operation: str, error: BaseException) -> None:
        pass


class NoSurvey:
    """Stands in for the rounds that count all queues: those begin at moments of their own, however many look."""

    ended_at = None

    async def rows(self, names: object, wait: float) -> dict[str, object]:
        return {}

    def hurry(self) -> None:
        pass

    def stop(self) -> None:
        pass


def test_ten_viewers_of_a_page_ask_the_store_no_more_than_one(url, monkeypatch) -> None:
    requests = Requests()
    monkeypatch.setattr("shardq.service.store_access.connect", partial(shardq.connect, observer=requests))

    async def asked(path: str) -> list[Counter[str]]:
        """Return what the store is asked for one viewer of a page, and for ten at the same time."""
        service: Any = Service(url, ServiceOptions(ui=True))
        service.store.survey = NoSurvey()
        service.store.shared = SharedReads(FRESH_SECONDS, lambda: 0.0)  # a read is never too old here
        transport = httpx2.ASGITransport(service)
        found = []
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as web:
            for viewers in (1, 1, 10):  # the first one opens the store
                service.store.forget()
                requests.counted.clear()
                answers = await asyncio.gather(*(web.get(path) for _ in range(viewers)))
                assert {answer.status_code for answer in answers} == {200}
                found.append(Counter(requests.counted))
        await service.close()
        return found[1:]

    with open_shop(url) as shop:
        paths = [shop.path(page.path) for page in PAGES if page.template != "checks"]
        found = {path: asyncio.run(asked(path)) for path in paths}
    assert {path: (one, ten) for path, (one, ten) in found.items() if one != ten} == {}


def test_ten_viewers_of_all_queues_have_them_counted_once(url, monkeypatch) -> None:
    requests = Requests()
    monkeypatch.setattr("shardq.service.store_access.connect", partial(shardq.connect, observer=requests))
    with shardq.connect(url) as client:
        names = [client.create_queue(f"queue-{number}", dead_letter_queue=None).name for number in range(5)]

    async def counts_by(viewers: int) -> int:
        service = Service(url, ServiceOptions(ui=True))
        requests.counted.clear()
        found = await asyncio.gather(*(service.store.survey.rows(names, 10) for _ in range(viewers)))
        assert all(each.keys() == set(names) for each in found)
        await service.close()
        return requests.counted["shards"]

    assert asyncio.run(counts_by(10)) == asyncio.run(counts_by(1)) > 0
