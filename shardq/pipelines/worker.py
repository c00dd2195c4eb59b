"""The worker of a pipeline, the processes that run it, and the result of a link's function for a message.

A message that is sent on as one is moved with ``forward``. That is one atomic step where the store can; else it is a
copy under a key that follows from the message, and then the ack. Each part of a split is sent once under a key that
follows from the message and the number of the part. Then the message is acked. So a repeated step sends nothing twice,
also when the message is in another batch then. The keys are remembered for 7 days.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from shardq.base.callables import check_has_run
from shardq.base.codec import BYTES, Codec
from shardq.base.outgoing_message import HeaderValue, OutgoingMessage
from shardq.base.texts import described, kind_of, shown
from shardq.client import Client
from shardq.client.outcome import Discard, Outcome, Retry, Snooze
from shardq.core.context.queue_context import QueueContext
from shardq.core.hooks import with_headers
from shardq.core.message import Message
from shardq.core.sending.appending import prepare
from shardq.core.sending.prepared import prepare_options
from shardq.core.sending.storing import send_once
from shardq.errors import InvalidSetting, LeaseLost, OutcomeUnknown, QueueFull, QueuePaused, StoreUnavailable
from shardq.pipelines.pipeline import Forward, Link, Pipeline, Split, UndeclaredTarget, check_pipeline
from shardq.pipelines.throughput import LinkTally, Notes, PipelineReport
from shardq.worker import JsonLog, PoolReport, Worker, WorkerOptions, WorkerPool
from shardq.worker.attempt import Attempt
from shardq.worker.options import LoopKeywords
from shardq.worker.process import WorkerPlan
from shardq.worker.scaling import Processes

__all__ = ["LinkHandler", "PipelineKeywords", "PipelinePool", "PipelineWorker", "pipeline_named"]

PUT_OFF_SECONDS = 5.0
"""Until a message is tried again whose target takes none for now."""

SHORTEST_TTL = 0.001
"""Of a part that would expire before it is due."""


class LinkHandler:
    """The handler of a worker that runs one link."""

    def __init__(self, link: Link, client: Client, codec: Codec, tally: LinkTally) -> None:
        self._link, self._client, self._codec, self._tally = link, client, codec, tally

    def __call__(self, message: Message) -> Any:
        """Call the function, and carry out its result; returns the outcome for the worker."""
        try:
            returned = self._link.function(message)
            return (
                self._counted(returned)
                if isinstance(returned, Outcome)
                else self._continue(message, returned)
            )
        except Outcome as outcome:
            self._counted(outcome)
            raise
        except Exception as error:
            self._count(failed=1)
            if self._link.retry is None:
                raise
            raise Retry(after=self._link.retry) from error

    def _continue(self, message: Message, returned: Any) -> Any:
        check_has_run("function", self._link.function, returned)
        if not self._link.targets:
            return self._ended(returned)
        if returned is None:
            self._count(worked=1, dropped=1)
            return None
        parts = returned.parts if isinstance(returned, Split) else (_as_forward(returned),)
        targets = [self._link.target(part.queue) for part in parts]
        try:
            if isinstance(returned, Split):
                self._split(message, parts, targets)
            else:
                self._forward(message, parts[0], targets[0])
        except LeaseLost:
            return None  # the worker's ack finds that too, and counts it
        except (QueuePaused, QueueFull, StoreUnavailable, OutcomeUnknown) as error:
            message.note(str(error))
            raise Snooze(PUT_OFF_SECONDS) from error
        self._count(worked=1, sent=len(parts), dropped=0 if parts else 1)
        return None

    def _ended(self, returned: Any) -> Any:
        """Count the message of a sink, and return its result."""
        if isinstance(returned, Forward | Split):
            raise UndeclaredTarget(
                f"{self._link.label} of the sink of {self._link.source!r} returned {shown(returned)}, but a sink sends "
                "nothing on: declare it with `link`, and its queues"
            )
        self._count(worked=1)
        return returned

    def _forward(self, message: Message, part: Forward, target: str) -> None:
        message.forward(
            target,
            body=part.body,
            headers=part.headers,
            delay=part.delay,
            priority=part.priority,
            atomic=False,  # in one step where the store can
        )

    def _split(self, message: Message, parts: Sequence[Forward], targets: Sequence[str]) -> None:
        """Send each part once, then ack. All are looked at before the first is sent: none is sent if one cannot be."""
        contexts = [self._client._contexts.of(target) for target in targets]  # noqa: SLF001 - as schedules send
        outgoing = [
            self._outgoing(message, part, context) for part, context in zip(parts, contexts, strict=True)
        ]
        for context, each in zip(contexts, outgoing, strict=True):
            prepare(context, each, each.body, prepare_options(each, context.name), BYTES)
        for number, (context, each) in enumerate(zip(contexts, outgoing, strict=True)):
            send_once(context, each, f"pipeline:{message.id}:{number}")
        message.ack()

    def _outgoing(self, message: Message, part: Forward, context: QueueContext) -> OutgoingMessage:
        """Make a part a new message, with the headers, priority, group and expiry of the one that was split."""
        body = (message.large or message.raw) if part.body is None else self._codec.encode(part.body)
        headers: Mapping[str, HeaderValue] | None = message.headers if part.headers is None else part.headers
        if context.hooks is not None:
            headers = with_headers(context.hooks, context.name, headers)
        return OutgoingMessage(
            body=body,
            headers=headers,
            priority=message.priority if part.priority is None else part.priority,
            delay=part.delay,
            group=message.group,
            ttl=_ttl(message, part.delay, context.store.now()),
        )

    def _counted(self, outcome: Outcome) -> Outcome:
        match outcome:
            case Snooze():
                self._count(put_off=1)
            case Discard():
                self._count(dropped=1)
            case _:
                self._count(failed=1)
        return outcome

    def _count(self, **amounts: int) -> None:
        self._tally.add(self._link.source, **amounts)


def _as_forward(returned: Any) -> Forward:
    return returned if isinstance(returned, Forward) else Forward(body=returned)


def _ttl(message: Message, delay: float, now: int) -> float | None:
    """Return the seconds, after it is due, for which a part is delivered: it expires when the message would have."""
    if message.expires_at is None:
        return None
    return max(message.expires_at.timestamp() - now / 1e6 - delay, SHORTEST_TTL)


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
            self._notes.write(self.report.links)


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
