"""Processes that run a pipeline: what ``shardq pipeline run`` starts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Unpack

from shardq.base.wording import kind_of, shown
from shardq.client import Client
from shardq.errors import InvalidSetting
from shardq.pipelines.pipeline import Pipeline
from shardq.pipelines.worker import PipelineKeywords, PipelineWorker
from shardq.worker import PoolReport, WorkerOptions, WorkerPool
from shardq.worker.process import WorkerPlan
from shardq.worker.scaling import Processes

__all__ = ["PipelinePool", "pipeline_named"]


class PipelinePlan(WorkerPlan, frozen=True, kw_only=True):
    """What a process of a pool of a pipeline is given to do."""

    pipeline: str

    @property
    def queues(self) -> tuple[str, ...]:
        """The sources of its links."""
        return tuple(dict.fromkeys(link.source for link in pipeline_named(self.pipeline).links))

    def worker(self, client: Client) -> PipelineWorker:
        """The worker that the process runs."""
        options: Any = {name: getattr(self.options, name) for name in PipelineKeywords.__annotations__}
        return PipelineWorker(pipeline_named(self.pipeline), client, **options)


class PipelinePool(WorkerPool):
    """Runs a :class:`PipelineWorker` in each of several processes, and replaces those that die.

    ``pipeline`` is ``package.module:pipeline``, which each process imports. All else is as in
    :class:`~shardq.worker.WorkerPool`. The total of its report is a :class:`PipelineReport`.

    >>> PipelinePool(url, "shop.flow:pipeline", processes=4, idle_exit=5).run()  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        pipeline: str,
        *,
        processes: Processes = 1,
        handler_timeout: float | None = None,
        max_restarts: int = 10,
        on_progress: Callable[[PoolReport], None] = lambda _: None,
        **options: Unpack[PipelineKeywords],
    ) -> None:
        if not isinstance(pipeline, str):
            raise InvalidSetting(
                f"pipeline={shown(pipeline)} is {kind_of(pipeline)}: name it, as in 'package.module:pipeline'"
            )
        self._begin(
            PipelinePlan(url=url, handlers={}, options=WorkerOptions(**options), pipeline=pipeline),
            processes=processes,
            handler_timeout=handler_timeout,
            max_restarts=max_restarts,
            on_progress=on_progress,
        )


def pipeline_named(name: str) -> Pipeline:
    """The pipeline that ``package.module:pipeline`` names. Raises InvalidSetting."""
    module, separator, path = name.partition(":")
    if not module or not separator or not path:
        raise InvalidSetting(f"pipeline {name!r} names none: give it as 'package.module:pipeline'")
    try:
        found = getattr(importlib.import_module(module), path)
    except Exception as error:
        raise InvalidSetting(
            f"pipeline {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Pipeline):
        raise InvalidSetting(
            f"pipeline {name!r} is {kind_of(found)}: name what shardq.pipelines.Pipeline() made"
        )
    return found
