"""``manage.py shardq_work``."""

from __future__ import annotations

import logging
import os
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from shardq.django.backend import backend_named
from shardq.errors import ShardqError
from shardq.tasks import TaskPool
from shardq.worker import JsonLog

__all__ = ["Command"]


class Command(BaseCommand):
    """Runs Django's tasks in several processes, until Ctrl-C or SIGTERM."""

    help = "Run the tasks of a backend in several processes, until Ctrl-C or SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options, which are some of those of ``shardq work``."""
        parser.add_argument("queues", nargs="*", metavar="QUEUE", help="Queues of TASKS; all without any.")
        parser.add_argument("--backend", default="default", help="The alias in TASKS.")
        parser.add_argument("--processes", "-p", type=int, default=1)
        parser.add_argument("--threads", type=int, default=1, help="Tasks that each process runs at a time.")
        parser.add_argument(
            "--idle-exit", type=float, help="End when nothing was due for this time, in seconds."
        )
        parser.add_argument("--log-format", choices=["text", "json"], default="text")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run a pool of workers."""
        alias, log = options["backend"], JsonLog() if options["log_format"] == "json" else None
        try:
            backend = backend_named(alias)
            pool = TaskPool(
                backend.url or os.environ.get("SHARDQ_URL", ""),
                f"shardq.django.worker:{alias}",
                queues=[backend.runner(name).settings.queue for name in options["queues"]] or None,
                processes=options["processes"],
                threads=options["threads"],
                idle_exit=options["idle_exit"],
                log=log,
            )
            if log is not None:
                log.begin()
            write = self.stderr.write if log is None else logging.getLogger("shardq.work").info
            write(f"working on {pool.description}; Ctrl-C ends after those at hand")
            total = pool.run().total
        except (ImproperlyConfigured, ShardqError) as error:
            raise CommandError(str(error)) from error
        write(f"{total.worked} tasks worked, {total.failed} failed")
