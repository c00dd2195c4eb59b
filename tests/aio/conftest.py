"""What the tests of the asyncio client share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import shardq
import shardq.aio
from tests.any_store import any_url

__all__ = ["any_url"]

Main = Callable[[shardq.aio.Client], Coroutine[Any, Any, Any]]


@pytest.fixture
def run(url: str) -> Callable[[Main], Any]:
    """Runs a coroutine with a client of a fresh store, in a loop of its own."""

    def run_main(main: Main) -> Any:
        async def connected() -> Any:
            async with shardq.aio.connect(url, retry_seconds=0.5) as client:
                return await main(client)

        return asyncio.run(connected())

    return run_main
