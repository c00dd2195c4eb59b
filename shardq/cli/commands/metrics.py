"""``shardq metrics``: the state of all queues, for Prometheus."""

from __future__ import annotations

import click

from shardq.base.waits import Flag
from shardq.cli.command import ExampleCommand, Session
from shardq.cli.printing import note
from shardq.cli.queue_history import history_option, keeping_history
from shardq.cli.times import duration
from shardq.metrics.pages import Answer, Page, PageServer, check_port, metrics_page
from shardq.metrics.queues import INTERVAL_SECONDS, QueueMetrics
from shardq.worker.signals import stop_signals

__all__ = ["metrics"]

PORT = 9_464


@click.command(cls=ExampleCommand, example="shardq metrics --port 9464\nshardq metrics --once > queues.prom")
@click.option("--port", type=int, default=PORT, show_default=True, help="The port that is served.")
@click.option(
    "--bind",
    "host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address that is served; 0.0.0.0 for other machines, too.",
)
@click.option(
    "--interval",
    type=duration,
    default=INTERVAL_SECONDS,
    help="Time between two samples.  [15, or 19 times as long as one takes]",
)
@click.option("--prefix", default="", help="Only queues whose names begin so.")
@click.option("--once", is_flag=True, help="Print the metrics once, and end.")
@history_option
@click.pass_obj
def metrics(
    session: Session, port: int, host: str, interval: float, prefix: str, once: bool, keeps_history: bool
) -> None:
    """Serve the state of all queues, for Prometheus.

    It shows their depth, the age of messages, consumers, the lag of topics and late schedules. The queues are counted
    in the background, so a scrape asks the store nothing. One such process is enough for a store.
    `shardq work --metrics-port` shows the work of workers.

    /metrics shows the names of queues to anybody who reaches the port. /livez answers while the command runs.
    """
    check_port("port", port)
    collector = QueueMetrics(session.client, interval=interval, prefix=prefix)
    page = metrics_page(collector)
    if once:
        collector.sample()
        click.echo(page("", "").body, nl=False)
        return
    ended = Flag()  # whose wait lets a signal be handled at any moment
    with collector, PageServer(host, port, {"/metrics": page, "/livez": _live(collector)}) as server:
        collector.start()
        note(f"http://{host}:{server.port}/metrics shows the queues, until Ctrl-C")
        with keeping_history(session.url if keeps_history else None), stop_signals(ended.set):
            ended.wait()


def _live(collector: QueueMetrics) -> Page:
    def live(_query: str, _accept: str) -> Answer:
        return Answer(200, b"ok\n") if collector.runs else Answer(503, b"failed\n")

    return live
