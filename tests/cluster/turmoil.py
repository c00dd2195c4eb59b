"""Producers and consumers at work while the servers below them die and hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import shardq
from tests.crash.followed import followed, succeeded
from tools.faults.stage import Stage

__all__ = ["Servers", "endure"]

PATIENCE = 45.0


class Servers(Protocol):
    """Several servers that are one store."""

    url: str

    def kill(self) -> None:
        """End one without warning, the one that matters most."""

    def start(self) -> None:
        """Start it again; returns when it answers."""

    def pause(self) -> None:
        """Let another one hang."""

    def resume(self) -> None:
        """Let it go on."""


def endure(servers: Servers, folder: Path, *, lease: float, seconds: float) -> None:
    """Check that every promise holds when one server is killed and another one hangs for ``seconds`` or more."""
    with shardq.connect(servers.url, retry_seconds=60) as client:
        queue = client.create_queue(
            "crash",
            shards=4,
            time_shards=4,
            time_shard_seconds=5,
            visibility_timeout=lease,
            max_deliveries=None,
        )
        steps: list[Callable[[], None]] = [
            lambda: None,
            servers.kill,
            servers.start,
            servers.pause,
            servers.resume,
        ]
        with followed(queue, servers.url, folder, lease=lease, rate=20.0) as stage:
            for step in steps:
                step()
                _go_on(stage, seconds)


def _go_on(stage: Stage, seconds: float) -> None:
    """Let a state of the servers last for a while, and until something was sent and acked in it."""
    began = time.monotonic_ns()
    time.sleep(seconds)
    while idle := {"send", "ack"} - succeeded(stage, since=began).keys():
        assert time.monotonic_ns() - began < PATIENCE * 1e9, f"since then there was no {idle}"
        time.sleep(0.5)
    assert stage.deaths() == []
