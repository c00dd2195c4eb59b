"""A pipeline as a picture, with how much waits in its queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from shardq.base import graphs
from shardq.base.graphs import Node
from shardq.client import Client
from shardq.client.queue import Queue
from shardq.core.settings import check_number
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.pipelines.pipeline import Link, Pipeline, check_pipeline
from shardq.pipelines.throughput import LinkRate

__all__ = ["QueueDepth", "as_dot", "as_mermaid", "as_svg", "as_text", "depths_of", "with_rates"]

LONGEST_INTERVAL = 3_600.0


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one queue of a pipeline at one moment.

    ``dead`` are those in its dead-letter queue. ``per_second`` is the growth of ready, delayed and in-flight messages
    per second; below 0: they shrink. ``paused`` means that its deliveries are paused.

    >>> QueueDepth(queue="raw", ready=7, delayed=0, in_flight=2).waiting
    9
    """

    queue: str
    ready: int
    delayed: int
    in_flight: int
    dead: int = 0
    oldest: datetime | None = None
    paused: bool = False
    per_second: float | None = None

    @property
    def waiting(self) -> int:
        """All that is not done yet."""
        return self.ready + self.delayed + self.in_flight


def depths_of(pipeline: Pipeline, client: Client, *, interval: float | None = None) -> list[QueueDepth]:
    """Count the messages of each queue; twice, ``interval`` seconds apart, for rates. Raises QueueNotFound."""
    if interval is not None:
        check_number("interval", interval, 0.01, LONGEST_INTERVAL)
    check_pipeline(pipeline)
    pipeline.check_queues(client)
    queues = [client.queue(name) for name in pipeline.queues]
    found = [_depth(client, queue) for queue in queues]
    if interval is None:
        return found
    began = time.monotonic()
    time.sleep(interval)
    return with_rates(found, [_depth(client, queue) for queue in queues], time.monotonic() - began)


def with_rates(before: Sequence[QueueDepth], now: Sequence[QueueDepth], seconds: float) -> list[QueueDepth]:
    """Return the present depths, with how fast they have changed since."""
    return [
        msgspec.structs.replace(later, per_second=(later.waiting - earlier.waiting) / seconds)
        for earlier, later in zip(before, now, strict=True)
    ]


def _depth(client: Client, queue: Queue) -> QueueDepth:
    counts, settings = queue.counts(), queue.settings
    dead = dead_letter_name(queue.name, settings) if settings.has_dead_letters else None
    return QueueDepth(
        queue=queue.name,
        ready=counts.ready,
        delayed=counts.delayed,
        in_flight=counts.in_flight,
        dead=client.queue(dead).counts().ready if dead is not None and client.exists(dead) else 0,
        oldest=counts.oldest,
        paused=settings.delivery_paused,
    )


_COLOURS = {
    "idle": "#eeeeee",
    "busy": "#cfe4ff",
    "dead": "#f8c9c9",  # has dead letters
    "paused": "#e3d5f0",
    "sink": "#ffffff",
}

Depths = Sequence[QueueDepth]
Rates = Mapping[str, LinkRate]


def as_text(pipeline: Pipeline, depths: Depths = (), rates: Rates | None = None) -> str:
    """Draw a tree for each source. A queue that was drawn already is named, and not followed again."""
    seen: set[str] = set()
    facts = {each.queue: f"  {_facts(each)}" for each in depths}
    labels = {link.source: f"{link.label}{_through(link, rates)}" for link in pipeline.links}
    lines = [pipeline.name]
    for source in pipeline.sources:
        lines += _branch(pipeline, source, facts, labels, seen)
    return "\n".join(lines)


def _branch(
    pipeline: Pipeline, queue: str, facts: dict[str, str], labels: dict[str, str], seen: set[str]
) -> Iterator[str]:
    link = next((each for each in pipeline.links if each.source == queue), None)
    if link is None:
        yield f"{queue}  (output){facts.get(queue, '')}"
        return
    if queue in seen:
        yield f"{queue}  (above)"
        return
    seen.add(queue)
    yield f"{queue}  {labels[queue]}{'' if link.targets else '  (sink)'}{facts.get(queue, '')}"
    for target in link.targets:
        first, *others = _branch(pipeline, target, facts, labels, seen)
        yield f"  -> {first}"
        yield from (f"     {line}" for line in others)


def as_mermaid(pipeline: Pipeline, depths: Depths = (), rates: Rates | None = None) -> str:
    """Write a flowchart for Mermaid."""
    return graphs.as_mermaid(_nodes(pipeline, depths, rates), _COLOURS)


def as_svg(pipeline: Pipeline, depths: Depths = (), rates: Rates | None = None) -> str:
    """Draw an SVG, from left to right."""
    return graphs.as_svg(_nodes(pipeline, depths, rates), _COLOURS)


def _through(link: Link, rates: Rates | None) -> str:
    """Write how many messages a second went through a link, if there are rates."""
    return "" if rates is None else f" {rates.get(link.source, LinkRate(link.source)).worked:,.1f}/s"


def _nodes(pipeline: Pipeline, depths: Depths, rates: Rates | None) -> list[Node]:
    """Make a box for each queue, and one for each sink, behind those that lead to it."""
    counted = {each.queue: each for each in depths}
    numbers: dict[str, int] = {}
    nodes: list[Node] = []
    for name in _in_order(pipeline):
        before = [link for link in pipeline.links if name in link.targets]
        after, labels = (
            tuple(numbers[link.source] for link in before),
            tuple(f"{link.label}{_through(link, rates)}" for link in before),
        )
        numbers[name] = len(nodes)
        nodes.append(_node(name, counted.get(name), after, labels))
    nodes += [
        Node(
            f"{link.label}{_through(link, rates)}",
            "sink",
            "sink",
            f"sink of {link.source}",
            (numbers[link.source],),
        )
        for link in pipeline.links
        if not link.targets
    ]
    return nodes


def _node(name: str, depth: QueueDepth | None, after: tuple[int, ...], labels: tuple[str, ...]) -> Node:
    if depth is None:
        return Node(name, "", "idle", name, after, labels)
    kind = "paused" if depth.paused else "dead" if depth.dead else "busy" if depth.waiting else "idle"
    note = f"{depth.waiting:,}{_rate(depth)}"
    return Node(name, note, kind, f"{name}: {_facts(depth)}", after, labels)


def _in_order(pipeline: Pipeline) -> list[str]:
    """Sort the queues, each behind all that lead to it."""
    left, order = list(pipeline.queues), list[str]()
    while left:
        for name in left:
            if all(link.source in order for link in pipeline.links if name in link.targets):
                order.append(name)
                left.remove(name)
                break
    return order


def _facts(depth: QueueDepth) -> str:
    counts = {"delayed": depth.delayed, "in flight": depth.in_flight, "dead": depth.dead}
    parts = [f"{depth.ready:,} ready{_rate(depth)}"]
    parts += [f"{count:,} {what}" for what, count in counts.items() if count]
    return ", ".join([*parts, "paused"] if depth.paused else parts)


def _rate(depth: QueueDepth) -> str:
    return "" if depth.per_second is None else f" {depth.per_second:+,.1f}/s"


def as_dot(pipeline: Pipeline, depths: Depths = (), rates: Rates | None = None) -> str:
    """Write a graph for Graphviz."""
    lines = ["digraph {", "  rankdir=LR; node [shape=box];"]
    for depth in depths:
        text = _quoted(f"{depth.queue}\n{depth.waiting:,}{_rate(depth)}")
        lines.append(f"  {_quoted(depth.queue)} [label={text}];")
    for link in pipeline.links:
        label = _quoted(f"{link.label}{_through(link, rates)}")
        lines += [
            f"  {_quoted(link.source)} -> {_quoted(target)} [label={label}];" for target in link.targets
        ]
        if not link.targets:
            end = _quoted(f"sink of {link.source}")
            lines += [f"  {end} [label={label}, shape=circle];", f"  {_quoted(link.source)} -> {end};"]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
