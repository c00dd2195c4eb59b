"""Killing the Python workers of this test's own Spark."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil


def workers() -> list[int]:
    """The Python workers that Spark has forked: children of its daemons, which are children of its JVM."""
    (java,) = (
        each
        for each in psutil.Process().children()
        if "org.apache.spark.deploy.SparkSubmit" in each.cmdline()
    )
    return [worker.pid for daemon in java.children() for worker in daemon.children()]


def kill_workers_when(ready: Callable[[], bool], seconds: float = 60.0) -> int:
    """Wait for something, then end all workers without warning; returns how many they were."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.02)
    victims = workers()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return len(victims)
