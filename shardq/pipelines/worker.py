"""The worker of a pipeline, and the processes that run it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Unpack

from shardq.base.texts import described, kind_of, shown
from shardq.client import Client
from shardq.errors import InvalidSetting
from shardq.pipelines.pipeline import Pipeline, check_pipeline
from shardq.pipelines.stepping import LinkHandler
from shardq.pipelines.throughput import LinkTally, Notes, PipelineReport
from shardq.worker import JsonLog, PoolReport, Worker, WorkerOptions, WorkerPool
from shardq.worker.attempt import Attempt
from shardq.worker.options import LoopKeywords
from shardq.worker.process import WorkerPlan
from shardq.worker.scaling import Processes

__all__ = ["PipelineKeywords", "PipelinePool", "PipelineWorker", "pipeline_named"]


class PipelineKeywords(LoopKeywords, total=False):
    """The options of workers that a pipeline takes, as keyword arguments."""


class PipelineWorker(Worker):
    """Runs all links of a pipeline, one message at a time. Stops, leases, retries and dead letters are a worker's.

    Raises the errors of :meth:`Pipeline.check_queues`. With ``idle_exit`` it ends when the sources of all links are
    empty.

    >>> from shardq.pipelines import Pipeline
    >>> client = shardq.connect(url)
    >>> raw, parsed = client.create_queue("raw"), client.create_queue("parsed")
    >>> sent = raw.producer().send(b" a line ")
    >>> pipeline = Pipeline("clean").link("raw", "parsed", lambda message: message.body.strip()).output("parsed")
    >>> PipelineWorker(pipeline, client, idle_exit=0).run().links["raw"].sent
    1
    """

    def __init__(self, pipeline: Pipeline, client: Client, **options: Unpack[PipelineKeywords]) -> None:
        check_pipeline(pipeline)
        pipeline.check_queues(client)
        sources = tuple(link.source for link in pipeline.links)
        self._links = LinkTally(sources)
        self._notes = Notes(client, pipeline.name)
        handlers: dict[str, Any] = {
            link.source: LinkHandler(link, client, pipeline.codec, self._links) for link in pipeline.links
        }
        super().__init__(
            [client.queue(source) for source in sources],
            handlers if len(sources) > 1 else handlers[sources[0]],
            codec=pipeline.codec,
            **options,
        )

    @property
    def report(self) -> PipelineReport:
        """The counters of the worker so far, with those of each link. Any thread may read them."""
        return self._links.read(super().report)

    def run(self) -> PipelineReport:
        """Work until stopped or idle, as :meth:`shardq.worker.Worker.run` does."""
        super().run()
        return self.report

    def _work(self, attempt: Attempt) -> None:
        super()._work(attempt)
        with self._leaving():
            self._notes.tell(self.report.links)


class PipelinePlan(WorkerPlan, frozen=True, kw_only=True):
    """The plan of a process of a pool of a pipeline."""

    pipeline: str

    @property
    def work(self) -> str:
        """Describe the work in words."""
        return f"pipeline {self.pipeline}"

    @property
    def queues(self) -> tuple[str, ...]:
        """The sources of its links."""
        return tuple(dict.fromkeys(link.source for link in pipeline_named(self.pipeline).links))

    def load(self) -> None:
        """Import the pipeline."""
        pipeline_named(self.pipeline)

    def worker(self, client: Client) -> PipelineWorker:
        """Make the worker that the process runs."""
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
        measured: bool = False,
        log: JsonLog | None = None,
        **options: Unpack[PipelineKeywords],
    ) -> None:
        if not isinstance(pipeline, str):
            raise InvalidSetting(
                f"pipeline={shown(pipeline)} is {kind_of(pipeline)}: name it, as in 'package.module:pipeline'"
            )
        self._begin(
            PipelinePlan(url=url, handlers={}, options=WorkerOptions(**options), log=log, pipeline=pipeline),
            processes=processes,
            handler_timeout=handler_timeout,
            max_restarts=max_restarts,
            on_progress=on_progress,
            measured=measured,
        )


def pipeline_named(name: str) -> Pipeline:
    """Import the pipeline that ``package.module:pipeline`` names. Raises InvalidSetting."""
    module, separator, path = name.partition(":")
    if not module or not separator or not path:
        raise InvalidSetting(f"pipeline {name!r} names none: give it as 'package.module:pipeline'")
    try:
        found = getattr(importlib.import_module(module), path)
    except Exception as error:
        raise InvalidSetting(f"pipeline {name!r} cannot be loaded: {described(error)}") from error
    if not isinstance(found, Pipeline):
        raise InvalidSetting(
            f"pipeline {name!r} is {kind_of(found)}: name what shardq.pipelines.Pipeline() made"
        )
    return found
