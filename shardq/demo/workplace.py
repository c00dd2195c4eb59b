"""The folder and the queue of a run, which nothing else uses."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import msgspec

import shardq
from shardq.demo.plan import Options, Plan
from shardq.errors import ShardqError
from shardq.storage.opening import check_between_processes

__all__ = ["Leftovers", "Workplace", "count_leftovers"]

TIME_SHARD_SECONDS = 0.5
FIRST_RETRY_SECONDS = 3.0


class Leftovers(msgspec.Struct, frozen=True):
    """Messages of the queue by state, and those of its dead-letter queue."""

    ready: int
    delayed: int
    in_flight: int
    dead: int


class Workplace:
    """Makes the folder and the queue, and removes both at the end of the ``with`` block, unless ``keep`` is set."""

    def __init__(self, options: Options, data: Path, messages: int) -> None:
        name = f"flights-{secrets.token_hex(4)}"
        self.folder = options.output.absolute() / name
        self.plan = _plan(options, data.absolute(), messages, self.folder)
        self.keep = False

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        try:
            _create_queue(self.plan)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.keep:
            return
        with suppress(ShardqError):  # what ended the run, if anything did, is what has to be told
            _remove_queue(self.plan)
        shutil.rmtree(self.folder, ignore_errors=True)


def _plan(options: Options, data: Path, messages: int, folder: Path) -> Plan:
    if options.url is not None:
        check_between_processes(options.url, "the demo has several")
    return Plan(
        url=options.url or f"sqlite:///{quote(str(folder / 'queue.db'))}",
        queue=folder.name,
        data=data,
        records=folder,
        messages=messages,
        producers=options.producers,
        workers=options.workers,
        shards=options.shards,
        time_shards=options.time_shards,
        time_shard_seconds=TIME_SHARD_SECONDS,
        batch=options.batch,
        visibility_timeout=options.visibility_timeout,
        kill=options.kill,
    )


def _create_queue(plan: Plan) -> None:
    """Make the queue of a run; a store that is out of reach is not waited for as long as in the middle of a run."""
    with shardq.connect(plan.url, retry_seconds=FIRST_RETRY_SECONDS) as client:
        client.create_queue(
            plan.queue,
            shards=plan.shards,
            time_shards=plan.time_shards,
            time_shard_seconds=plan.time_shard_seconds,
            visibility_timeout=plan.visibility_timeout,
        )


def count_leftovers(plan: Plan) -> Leftovers:
    """Count what is left after a run."""
    with shardq.connect(plan.url) as client:
        queue = client.queue(plan.queue)
        counts, dead = queue.counts(), client.queue(_dead_letter_queue(queue)).counts()
    return Leftovers(
        counts.ready, counts.delayed, counts.in_flight, dead.ready + dead.delayed + dead.in_flight
    )


def _remove_queue(plan: Plan) -> None:
    """Remove the queue of a run and its dead-letter queue, if they are there."""
    with shardq.connect(plan.url) as client:
        if client.exists(plan.queue):
            dead = _dead_letter_queue(client.queue(plan.queue))
            client.delete_queue(plan.queue)
            if client.exists(dead):
                client.delete_queue(dead)


def _dead_letter_queue(queue: shardq.Queue) -> str:
    return queue.settings.dead_letter_queue or f"{queue.name}.dead"
