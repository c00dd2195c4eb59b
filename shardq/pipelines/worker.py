"""The worker of a pipeline: the loop of :class:`~shardq.worker.Worker`, with a handler for each link."""

from __future__ import annotations

from typing import Any, Unpack

from shardq.client import Client
from shardq.pipelines.pipeline import Pipeline, check_pipeline
from shardq.pipelines.report import LinkTally, PipelineReport
from shardq.pipelines.stepping import LinkHandler
from shardq.pipelines.throughput import Notes
from shardq.worker import Worker
from shardq.worker.attempt import Attempt
from shardq.worker.options import LoopKeywords

__all__ = ["PipelineKeywords", "PipelineWorker"]


class PipelineKeywords(LoopKeywords, total=False):
    """The options of workers that a pipeline takes, as keyword arguments."""


class PipelineWorker(Worker):
    """Runs all links of a pipeline, one message at a time. Stops, leases, retries and dead letters are a worker's.

    Raises what :meth:`Pipeline.check_queues` raises. With ``idle_exit`` it ends when the sources of all links are
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
        """What the worker has done so far, with the counters of each link. Any thread may read it."""
        return self._links.read(super().report)

    def run(self) -> PipelineReport:
        """Work until stopped or idle, as :meth:`shardq.worker.Worker.run` does."""
        super().run()
        return self.report

    def _work(self, attempt: Attempt) -> None:
        super()._work(attempt)
        with self._leaving():
            self._notes.tell(self.report.links)
