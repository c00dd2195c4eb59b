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


def test_an_action_that_is_cut_off_is_logged_with_what_it_has_changed(url, orders, caplog) -> None:
    async def main() -> None:
        service, begun = Service(url), asyncio.Event()
        desk = service.desk(Identity(Grant("ops", "act"), None))

        async def redrive(*_: object) -> None:
            desk.tally.counting()(7)
            begun.set()
            await asyncio.Event().wait()

        endpoint = msgspec.structs.replace(ACTIONS["redrive"], call=redrive)
        acting = asyncio.ensure_future(service.perform(endpoint, desk, "orders.dead", Redrive()))
        await begun.wait()
        acting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acting
        await service.close()

    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        asyncio.run(main())
    logged: dict[str, Any] = json.loads(caplog.records[0].message)
    assert (logged["action"], logged["outcome"], logged["changed"]) == ("redrive", "interrupted", 7)
