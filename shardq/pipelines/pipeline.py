"""A pipeline: its links, declared and checked as a graph, and the types that their functions return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shardq.base.callables import check_runs
from shardq.base.codec import BYTES, Codec, check_codec, codec_named
from shardq.base.outgoing_message import HeaderValue
from shardq.base.texts import kind_of, shown
from shardq.client import Client, check_client
from shardq.client.outcome import Backoff
from shardq.core.message import Message
from shardq.core.sending.prepared import are_several
from shardq.errors import InvalidSetting, QueueNotFound

__all__ = [
    "DanglingEnd",
    "DuplicateLink",
    "Forward",
    "InvalidPipeline",
    "Link",
    "LinkFunction",
    "Pipeline",
    "PipelineCycle",
    "Split",
    "UndeclaredTarget",
    "check_pipeline",
]

LinkFunction = Callable[[Message], Any]


class InvalidPipeline(InvalidSetting):
    """Raised for a pipeline that cannot run."""


class DuplicateLink(InvalidPipeline):
    """Raised when a queue has two links, or a link names a queue twice."""


class PipelineCycle(InvalidPipeline):
    """Raised when the links of a pipeline lead back to a queue."""


class DanglingEnd(InvalidPipeline):
    """Raised when no link takes the messages of another link, and their queue is not declared as an output."""


class UndeclaredTarget(InvalidPipeline):
    """Raised when the function of a link does not name one of the link's queues. It is a failure of the message."""


class Link(msgspec.Struct, frozen=True):
    """A link of a :class:`Pipeline`, as :meth:`Pipeline.link` declared it."""

    source: str
    targets: tuple[str, ...]  # empty: no message is sent on
    function: LinkFunction
    retry: Backoff | None = None

    def __post_init__(self) -> None:
        for name in (self.source, *self.targets):
            if not isinstance(name, str) or not name:
                raise InvalidPipeline(
                    f"queue={shown(name)} of a link is {kind_of(name)}: give the name of a queue"
                )
        if self.retry is not None and not isinstance(self.retry, Backoff):
            raise InvalidPipeline(
                f"retry={shown(self.retry)} of the link from {self.source!r}: give a shardq.Backoff"
            )
        check_runs(f"function of the link from {self.source!r}", self.function)
        twice = [name for name in self.targets if self.targets.count(name) > 1]
        if twice:
            raise DuplicateLink(f"the link from {self.source!r} names {twice[0]!r} twice: name it once")
        if self.source in self.targets:
            raise PipelineCycle(
                f"the link from {self.source!r} leads to itself: return shardq.Retry or shardq.Snooze to have a "
                "message again"
            )

    @property
    def label(self) -> str:
        """The name of its function in pictures."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def target(self, named: str | None) -> str:
        """Return the queue to which a message is sent. Raises UndeclaredTarget."""
        if named is None and len(self.targets) == 1:
            return self.targets[0]
        if named not in self.targets or named is None:
            raise UndeclaredTarget(
                f"{self.label} of the link from {self.source!r} sends to {shown(named)}: return Forward with one of "
                f"{list(self.targets)}, or None to drop the message"
            )
        return named


class Forward(msgspec.Struct, frozen=True):
    """Send the message on to a queue of the link; with only one, ``queue`` may be left out.

    A body, headers and priority that are None are unchanged. ``delay`` is in seconds. A value that cannot be sent is a
    failure of the message.

    >>> Forward("paid", delay=60)
    Forward(queue='paid', body=None, headers=None, priority=None, delay=60)
    """

    queue: str | None = None
    body: Any = None
    headers: Mapping[str, HeaderValue] | None = None  # all of them; empty: none any more
    priority: int | None = None
    delay: float = 0.0


class Split:
    """Send several messages on in place of one: bodies, or :class:`Forward` with other changes.

    Each part is sent once, however often the link is repeated, if the function returns the same parts in the same
    order each time. Without any part the message is dropped. Raises InvalidSetting for one body, the parts of which
    would be sent.

    >>> len(Split([b"a", b"b"]).parts)
    2
    """

    def __init__(self, parts: Iterable[Any]) -> None:
        if not are_several(parts):
            raise InvalidSetting(
                f"parts={shown(parts)} of a Split is {kind_of(parts)}: give a list of bodies, or return "
                "the body itself"
            )
        self.parts = tuple(each if isinstance(each, Forward) else Forward(body=each) for each in parts)

    def __repr__(self) -> str:
        return f"Split({list(self.parts)!r})"


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
