"""The folder and the queue of a run, which nothing else uses."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from shardq.demo.options import Options
from shardq.demo.plan import Plan
from shardq.demo.run_queue import create_queue, remove_queue
from shardq.errors import ShardqError

__all__ = ["Workplace"]

TIME_SHARD_SECONDS = 0.5


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
            create_queue(self.plan)
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
            remove_queue(self.plan)
        shutil.rmtree(self.folder, ignore_errors=True)


def _plan(options: Options, data: Path, messages: int, folder: Path) -> Plan:
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
