"""``shardq pipeline``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from shardq.cli.command import (
    ExampleCommand,
    ExampleGroup,
    ReadCommand,
    Session,
    json_option,
    processes_option,
)
from shardq.cli.commands.work import USUAL
from shardq.cli.pools import check_ended, monitor_options, run_pool, summary
from shardq.cli.printing import log_option, many, note, note_or_log, print_json, print_line
from shardq.cli.times import duration
from shardq.pipelines import Link, LinkRate, Pipeline, PipelinePool, depths_of, rates_of
from shardq.pipelines.drawing import as_dot, as_mermaid, as_svg, as_text
from shardq.pipelines.throughput import LinkReport, PipelineReport
from shardq.pipelines.worker import pipeline_named
from shardq.worker import PoolReport

__all__ = ["pipeline"]

_DRAWINGS = {"text": as_text, "mermaid": as_mermaid, "dot": as_dot}

_argument = click.argument("pipeline", metavar="MODULE:PIPELINE")


def _loaded(name: str) -> Pipeline:
    """Load the pipeline; also from the current folder."""
    sys.path.insert(0, str(Path.cwd()))
    return pipeline_named(name)


@click.group(cls=ExampleGroup, example="shardq pipeline run shop.flow:pipeline --processes 4")
def pipeline() -> None:
    """Run, draw and check pipelines: links from queue to queue."""


@pipeline.command(cls=ExampleCommand, example="shardq pipeline run shop.flow:pipeline --processes 4")
@_argument
@processes_option
@click.option("--batch", type=int, default=USUAL.batch, show_default=True, help="Messages in one bulk read.")
@click.option("--idle-exit", type=duration, help="End when nothing was due in its queues for this time.")
@click.option(
    "--retry-delay",
    type=duration,
    help="Delay before a failed message is delivered again; doubles.  [the queue's]",
)
@click.option("--max-retry-delay", type=duration, help="The longest such delay.  [the queue's]")
@click.option(
    "--handler-timeout",
    type=duration,
    help="Kill and replace a process that finishes no message for this time.",
)
@monitor_options
@log_option
@json_option
@click.pass_obj
def run(session: Session, /, pipeline: str, as_json: bool, **options: Any) -> None:
    """Run all links of a pipeline, in several processes.

    The queues must exist. Ctrl-C or SIGTERM ends the processes after the messages at hand, as with `shardq work`. So
    do the options for metrics and health what they do there.
    """
    _loaded(pipeline).check_queues(session.client)
    report = run_pool(partial(PipelinePool, session.url, pipeline), session.url, pipeline, options)
    if as_json:
        print_json(report)
    else:
        for line in (summary(report), *_by_link(report)):
            note_or_log(line, options["log"])
    check_ended(report)


def _by_link(report: PoolReport) -> list[str]:
    """Make a line for each link."""
    links = report.total.links if isinstance(report.total, PipelineReport) else {}
    return [f"{source}: {_facts(link)}" for source, link in links.items()]


def _facts(link: LinkReport) -> str:
    return (
        f"{link.worked:,} worked, {link.sent:,} sent, {link.dropped:,} dropped, {link.failed:,} failed, "
        f"{link.put_off:,} put off"
    )


@pipeline.command(
    cls=ReadCommand,
    example="shardq pipeline show shop.flow:pipeline --depths --interval 5s --svg flow.svg",
)
@_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_DRAWINGS)),
    default="text",
    show_default=True,
    help="The format of the picture.",
)
@click.option("--svg", type=click.File("w", lazy=True), help="Draw it into this file; - is stdout.")
@click.option("--depths", is_flag=True, help="Show the pending messages of each queue, and its dead letters.")
@click.option("--interval", type=duration, help="Count twice, this far apart, for rates. Needs --depths.")
@json_option
@click.pass_obj
def show(
    session: Session,
    pipeline: str,
    form: str,
    svg: IO[str] | None,
    depths: bool,
    interval: float | None,
    as_json: bool,
) -> None:
    """Draw a pipeline.

    No store is needed, but for --depths. Each link then shows how many messages a second went through it lately. With
    --interval each queue shows by how many messages it grows in a second, all states but the processed ones together;
    below 0 it shrinks.
    """
    if interval is not None and not depths:
        raise click.UsageError("--interval is for rates: give --depths too")
    found = _loaded(pipeline)
    found.check()
    counted = depths_of(found, session.client, interval=interval) if depths else []
    rates = rates_of(found, session.client) if depths else None
    if svg is not None:
        svg.write(as_svg(found, counted, rates) + "\n")
    if as_json:
        links = [_link_view(link, rates) for link in found.links]
        print_json({"name": found.name, "links": links, "outputs": found.outputs, "queues": counted})
    elif svg is None:
        print_line(_DRAWINGS[form](found, counted, rates))


def _link_view(link: Link, rates: Mapping[str, LinkRate] | None) -> dict[str, object]:
    view: dict[str, object] = {"source": link.source, "targets": link.targets, "function": link.label}
    if rates is not None:
        rate = rates.get(link.source, LinkRate(link.source))
        view |= {"worked_per_second": rate.worked, "sent_per_second": rate.sent}
    return view


@pipeline.command(cls=ExampleCommand, example="shardq pipeline check shop.flow:pipeline")
@_argument
@click.pass_obj
def check(session: Session, pipeline: str) -> None:
    """Check the links of a pipeline, and that its queues exist."""
    found = _loaded(pipeline)
    found.check_queues(session.client)
    note(
        f"{found.name}: {many(len(found.links), 'link')} and {many(len(found.queues), 'queue')} are as they should be"
    )
