"""Producers and consumers at work while the servers below them die and hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import shardq
from tests.crash.ledger import Ledger
from tests.crash.stage import Stage, drain

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
        stage = Stage(folder, servers.url, 0)
        steps: list[Callable[[], None]] = [
            lambda: None,
            servers.kill,
            servers.start,
            servers.pause,
            servers.resume,
        ]
        try:
            # Given producers and consumers at work
            for role in ("trickle", "trickle", "work", "work"):
                stage.start(role)
            # When a server is killed and comes back, and another one hangs for a while
            for step in steps:
                step()
                _go_on(stage, seconds)
            stage.end("trickle")
            drain(queue, 150)
        finally:
            stage.end("trickle")
            stage.end("work")
        # Then every promise held
        assert not Ledger(stage.logs).problems()


def _go_on(stage: Stage, seconds: float) -> None:
    """Let a state of the servers last for a while, and until something was sent and acked in it."""
    began = time.monotonic_ns()
    time.sleep(seconds)
    while idle := {"sent", "acked"} - _happened(stage, since=began):
        assert time.monotonic_ns() - began < PATIENCE * 1e9, f"since then nothing was {idle}"
        time.sleep(0.5)
    assert [process.poll() for _, process in stage.actors] == [None] * len(stage.actors), "an actor gave up"


def _happened(stage: Stage, since: int) -> set[str]:
    times = Ledger(stage.logs).times
    return {
        event for event, bodies in times.items() if any(max(moments) > since for moments in bodies.values())
    }
