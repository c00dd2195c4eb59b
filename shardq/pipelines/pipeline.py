"""A pipeline: its links, declared and checked as a graph."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.codec import BYTES, Codec, check_codec, codec_named
from shardq.base.texts import kind_of, shown
from shardq.client import Client, check_client
from shardq.client.outcome import Backoff
from shardq.errors import QueueNotFound
from shardq.pipelines.link import (
    DanglingEnd,
    DuplicateLink,
    InvalidPipeline,
    Link,
    LinkFunction,
    PipelineCycle,
)

__all__ = ["Pipeline", "check_pipeline"]


class Pipeline:
    """Links from queue to queue. Each takes messages from one, calls its function, and sends on its results.

    The function gets the :class:`~shardq.Message`, and returns

    - a body: the message is sent on with it;
    - None: the message is dropped;
    - a :class:`Forward`: it is sent to one of several queues, later, or with other headers or another priority;
    - a :class:`Split`: several are sent in its place;
    - an :class:`~shardq.Outcome`, as a handler of a worker does: it is retried, snoozed, discarded, or a dead letter.

    It may run twice for a message, as handlers may; nothing is sent twice for that if it returns the same each time.
    The codec is that of the bodies of all links. Declaring costs nothing; :meth:`check` checks the whole.

    >>> pipeline = Pipeline("clean").link("raw", "parsed", lambda message: message.body.strip()).output("parsed")
    >>> pipeline.check()
    >>> pipeline.queues
    ('raw', 'parsed')
    """

    def __init__(self, name: str, *, codec: Codec | str = BYTES) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidPipeline(f"name={shown(name)} of a pipeline is {kind_of(name)}: give a text")
        self.name = name
        self.codec = codec_named(codec) if isinstance(codec, str) else check_codec(codec)
        self._links: dict[str, Link] = {}
        self._outputs: list[str] = []

    @property
    def links(self) -> tuple[Link, ...]:
        """The links, in the order in which they were declared."""
        return tuple(self._links.values())

    @property
    def outputs(self) -> tuple[str, ...]:
        """The queues whose messages others receive."""
        return tuple(self._outputs)

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues, each once, in the order in which they were named."""
        named = [name for link in self.links for name in (link.source, *link.targets)]
        return tuple(dict.fromkeys([*named, *self._outputs]))

    @property
    def sources(self) -> tuple[str, ...]:
        """The queues into which no link leads."""
        targets = {name for link in self.links for name in link.targets}
        return tuple(link.source for link in self.links if link.source not in targets)

    def link(
        self,
        source: str,
        target: str | Sequence[str],
        function: LinkFunction,
        *,
        retry: Backoff | None = None,
    ) -> Pipeline:
        """Declare a link that takes from one queue and sends to another, or to one of several. Returns the pipeline.

        ``retry`` is the delay after failures; None: that of the worker, or else of the source queue. Raises
        DuplicateLink, PipelineCycle for a link to its own source, InvalidPipeline, and InvalidSetting unless it gets a
        plain function.
        """
        if not isinstance(target, str | Sequence):
            raise InvalidPipeline(
                f"target={shown(target)} of the link from {shown(source)} is {kind_of(target)}: give the name of a "
                "queue, or a list of names"
            )
        targets = (target,) if isinstance(target, str) else tuple(target)
        if not targets:
            raise InvalidPipeline(
                f"the link from {shown(source)} has no target: name a queue, or declare it with `sink`"
            )
        return self._add(Link(source, targets, function, retry))

    def sink(self, source: str, function: LinkFunction, *, retry: Backoff | None = None) -> Pipeline:
        """Declare a link that takes from a queue and sends nothing on.

        The function's return value is the message's result. Returns the pipeline. Raises as :meth:`link` does.
        """
        return self._add(Link(source, (), function, retry))

    def output(self, *queues: str) -> Pipeline:
        """Declare that others receive from these queues, so no link has to. Returns the pipeline.

        Raises InvalidPipeline.
        """
        for name in queues:
            if not isinstance(name, str) or not name:
                raise InvalidPipeline(
                    f"output={shown(name)} of pipeline {self.name!r} is {kind_of(name)}: give names of queues, as "
                    'in output("parsed", "failed")'
                )
        self._outputs += [name for name in dict.fromkeys(queues) if name not in self._outputs]
        return self

    def check(self) -> None:
        """Check the links as a graph. Raises PipelineCycle, DanglingEnd, DuplicateLink or InvalidPipeline."""
        if not self._links:
            raise InvalidPipeline(f"pipeline {self.name!r} has no links: declare some with `link`")
        for source in self._links:
            self._follow(source, (), set())
        self._check_ends()

    def check_queues(self, client: Client) -> None:
        """Look for each of the queues in the store. Raises QueueNotFound, and the errors of :meth:`check`."""
        check_client(client)
        self.check()
        for name in self.queues:
            try:
                _ = client.queue(name).settings
            except QueueNotFound as error:
                raise QueueNotFound(
                    f"pipeline {self.name!r} has the queue {name!r}, which does not exist: create it with "
                    f"`shardq create {name}`, or correct the name"
                ) from error

    def _add(self, link: Link) -> Pipeline:
        other = self._links.get(link.source)
        if other is not None:
            raise DuplicateLink(
                f"pipeline {self.name!r} has a link from {link.source!r} already, with {other.label}: a queue has "
                "one link; let its function choose between several targets"
            )
        self._links[link.source] = link
        return self

    def _follow(self, queue: str, path: tuple[str, ...], done: set[str]) -> None:
        if queue in path:
            raise PipelineCycle(
                f"pipeline {self.name!r} has a cycle, {' -> '.join((*path[path.index(queue) :], queue))}: take one "
                "of its links out, or return shardq.Retry to have a message again"
            )
        link = self._links.get(queue)
        if link is None or queue in done:
            return
        for target in link.targets:
            self._follow(target, (*path, queue), done)
        done.add(queue)

    def _check_ends(self) -> None:
        targets = {name for link in self.links for name in link.targets}
        for name in self.queues:
            if name in targets and name not in self._links and name not in self._outputs:
                raise DanglingEnd(
                    f"pipeline {self.name!r} sends to {name!r}, from which nothing takes: declare a link or a sink "
                    f"from it, or `.output({name!r})` if others receive from it"
                )
        for name in self._outputs:
            if name not in targets:
                raise DanglingEnd(
                    f"pipeline {self.name!r} has the output {name!r}, to which nothing is sent: declare a link to it"
                )
            if name in self._links:
                raise DuplicateLink(
                    f"pipeline {self.name!r} has the output {name!r} and a link from it: others would take its "
                    "messages from the link; leave one of the two out"
                )


def check_pipeline(pipeline: object) -> None:
    """Raise InvalidPipeline unless it is a pipeline."""
    if not isinstance(pipeline, Pipeline):
        raise InvalidPipeline(
            f"pipeline={shown(pipeline)} is {kind_of(pipeline)}: give what shardq.pipelines.Pipeline() made"
        )
