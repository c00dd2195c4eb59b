"""The part of the page that compares the latencies of queues under the same load."""

from __future__ import annotations

from shardq.bench.latency import count_at_rate
from shardq.bench.result import Result
from shardq.bench.wording import FIXED_RATE, figure, load_in_words

from .cells import table, with_spread
from .comparison import Comparison

PLOT = "waiting"
SECTION = """\
## Latency beside other queues

Milliseconds from the moment at which a message was to be sent to its receipt in another process: {load},
an open loop, so a stall shows in every message that it held up. One process sends them singly, another one receives
and acks whatever has come; {messages:,} messages in each round.

![Latency of each queue]({name}/{plot}.png)

{figures}"""


def latency_section(comparison: Comparison, folder: str) -> str:
    """A table of percentiles, and what wakes the receiver; empty without figures."""
    results = latency_results(comparison)
    if not results:
        return ""
    load = results[0].load
    wakes = {promise.name: promise.wakes for promise in comparison.promises}
    names = [item.name for item in results[0].figures[1:]]
    rows = [
        [
            result.subject,
            wakes[result.subject],
            with_spread(result),
            *(figure(item.value) for item in result.figures[1:]),
        ]
        for result in results
    ]
    return SECTION.format(
        load=load_in_words(FIXED_RATE, load),
        messages=count_at_rate(load),
        name=folder,
        plot=PLOT,
        figures=table(["queue", "what tells a waiting receiver", "p50", *names], rows, numbers_from=2),
    )


def latency_results(comparison: Comparison) -> list[Result]:
    """Those of the queues that were joined by other processes, in the order of the page."""
    found = (comparison.peer(promise.name, FIXED_RATE) for promise in comparison.promises)
    return [result for result in found if result]
