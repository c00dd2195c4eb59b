"""A dashboard that is served to a browser on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from shardq.cli.commands.doctor import examine
from shardq.service import Service, ServiceOptions
from shardq.service.sharing import Ticks

__all__ = ["QUICK", "Site", "serving"]

QUICK = 0.1
"""Seconds between the ticks by which pages read themselves again: tests need not wait for those of two seconds."""


class Site:
    """A service and its address."""

    def __init__(self, service: Service, address: str) -> None:
        self.service, self.address = service, address


@contextmanager
def serving(url: str, *, mask: Any = None, tick: float | None = QUICK, **options: Any) -> Iterator[Site]:
    """Serve the dashboard of a store in a thread of this process."""
    service = Service(url, ServiceOptions(ui=True, **options), mask=mask, doctor=examine)
    if tick is not None:
        service.store.ticks = Ticks(tick, share=1.0)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(service, log_config=None, access_log=False, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield Site(service, f"http://127.0.0.1:{bound.getsockname()[1]}")
        finally:
            service.stop()
            server.should_exit = True
            thread.join()
