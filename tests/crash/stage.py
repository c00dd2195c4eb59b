"""Actors as processes: started, killed, paused, and waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import shardq

__all__ = ["Stage", "drain", "wait_for"]


class Stage:
    """The processes of one round, and their logs."""

    def __init__(self, folder: Path, url: str, seed: int, queue: str = "crash") -> None:
        self.folder, self.url, self.seed, self.queue = folder, url, seed, queue
        self.logs: list[Path] = []
        self.actors: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, role: str) -> None:
        seed = f"{role}{self.seed}.{len(self.logs)}"
        log = self.folder / f"{seed}.log"
        log.touch()
        self.logs.append(log)
        script = str(Path(__file__).with_name("actor.py"))
        process = subprocess.Popen([sys.executable, script, role, self.url, self.queue, str(log), seed])
        self.actors.append((role, process))

    def kill(self, index: int) -> str:
        """Kill one actor without warning; returns its role."""
        role, process = self.actors.pop(index)
        process.kill()
        process.wait()
        return role

    def pause(self, index: int, seconds: float) -> None:
        """Stop one actor for a while, as a long pause of its machine would."""
        os.kill(self.actors[index][1].pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.actors[index][1].pid, signal.SIGCONT)

    def end(self, role: str) -> None:
        for index in reversed(range(len(self.actors))):
            if self.actors[index][0] == role:
                self.kill(index)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def drain(queue: shardq.Queue, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while (counts := queue.counts()) and counts.ready + counts.delayed + counts.in_flight:
        assert time.monotonic() < until, f"the queue does not drain: {counts}"
        time.sleep(0.1)
