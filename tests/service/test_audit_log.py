"""The audit log has each action, also one that is cut off, and may be rotated."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import msgspec
import pytest

from shardq.service import Grant, Service
from shardq.service.endpoints import ACTIONS
from shardq.service.parameters import Redrive
from shardq.service.sessions import Identity
from tests.service.forms import token_of


def test_an_action_that_is_cut_off_is_logged_with_what_it_has_changed(url, orders, caplog) -> None:
    async def main() -> None:
        service, begun = Service(url), asyncio.Event()
        access = service.access(Identity(Grant("ops", "act"), None))

        async def redrive(*_: object) -> None:
            access.tally.counting()(7)
            begun.set()
            await asyncio.Event().wait()

        endpoint = msgspec.structs.replace(ACTIONS["redrive"], call=redrive)
        acting = asyncio.ensure_future(service.perform(endpoint, access, "orders.dead", Redrive()))
        await begun.wait()
        acting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acting
        await service.close()

    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        asyncio.run(main())
    logged: dict[str, Any] = json.loads(caplog.records[0].message)
    assert (logged["action"], logged["outcome"], logged["changed"]) == ("redrive", "interrupted", 7)


SECRET = "a secret"


@pytest.mark.parametrize(
    ("path", "sent", "action", "outcome"),
    [
        ("/api/v1/messages/orders", {"json": {"body": SECRET}}, "send", "csrf"),
        ("/do/send/orders", {"data": {"body": SECRET, "csrf": SECRET}}, "send", "csrf"),
        ("/do/send/orders", {"json": {"body": SECRET}}, "send", "content_type"),
        ("/do/send/orders", {"data": {"body": SECRET, "csrf": True, "priority": SECRET}}, "send", "invalid_parameters"),
        ("/api/v1/messages/orders", {"data": {"body": SECRET}, "csrf": True}, "send", "content_type"),
        ("/api/v1/messages/orders", {"json": {SECRET: 1}, "csrf": True}, "send", "invalid_parameters"),
        ("/api/v1/purge/orders", {"json": {"confirm": "x" * 500}, "csrf": True}, "purge", "forbidden"),
        ("/api/v1/purge/" + "x" * 9_000, {"json": {"confirm": ""}}, "purge", "csrf"),
        ("/api/v1/remove/mail", {"json": {"ids": ["x"] * 9_000}, "csrf": True}, "remove_messages", "queue_not_found"),
    ],
)  # fmt: skip
def test_an_action_that_is_refused_before_its_call_is_logged_in_short(
    serve, keys, orders, caplog, path: str, sent: dict[str, Any], action: str, outcome: str
) -> None:
    ui = serve(ui=True, keys=str(keys.path))
    ui.post("/login", data={"key": keys.create("ops", "act", ["orders*"])})
    token = token_of(ui.get("/queues/orders").text)
    if sent.pop("csrf", False):
        sent["headers"] = {"x-csrf-token": token}
    if sent.get("data", {}).get("csrf") is True:
        sent["data"]["csrf"] = token
    caplog.clear()
    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        ui.post(path, **sent)
    (line,) = (each.message for each in caplog.records if each.name == "shardq.service.audit")
    logged = json.loads(line)
    assert (logged["key"], logged["action"], logged["outcome"]) == ("ops", action, outcome)
    assert logged["on"] == path.rpartition("/")[2][:300]
    assert len(line) < 2_000
    assert SECRET not in line
    assert orders.counts().ready == 0
