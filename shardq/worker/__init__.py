"""Workers: a loop that calls a handler with each message, and a pool of processes that run it."""

from __future__ import annotations

from shardq.worker.json_log import JsonFormatter, JsonLog, MessageEvents
from shardq.worker.options import WorkerOptions
from shardq.worker.pool import PoolReport, WorkerPool, WorkersFailing
from shardq.worker.report import WorkerReport
from shardq.worker.shell_command import ShellCommand
from shardq.worker.worker import Worker

__all__ = [
    "JsonFormatter",
    "JsonLog",
    "MessageEvents",
    "PoolReport",
    "ShellCommand",
    "Worker",
    "WorkerOptions",
    "WorkerPool",
    "WorkerReport",
    "WorkersFailing",
]
