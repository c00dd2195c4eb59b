"""The part of the page that compares the latencies of queues under the same load."""

from __future__ import annotations

from .cells import table, with_spread
from .comparison import Comparison
from .load_latency import KEEPS_UP
from .stores.latency import count_at_rate
from .stores.result import Result
from .stores.wording import FIXED_RATE, LOADED, figure, load_in_words

PLOT = "waiting"
SECTION = """\
## Latency beside other queues

Milliseconds from the moment at which a message was to be sent to its receipt in another process: {load},
an open loop, so a stall shows in every message that it held up. One process sends them singly, another one receives
and acks whatever has come; {messages:,} messages in each round.

![Latency of each queue]({name}/{plot}.png)

{figures}"""
UNDER_LOAD = "under-load"
LOADED_SECTION = """\
## Latency against load

The same open loop at rates that double, each for {seconds:g} s, one round: {threads} threads of one process send singly
and wait for each of their sends; another process receives and acks whatever has come. A queue's line ends where it no
longer keeps up (a cross): the last fifth of the messages took more than a tenth of the time. It is the
limit of all together: clients in Python, server and disk, on one machine.

![Latency against load]({name}/{plot}.png)

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


def loaded_section(comparison: Comparison, folder: str) -> str:
    """Percentiles by rate, as far as each queue keeps up; empty without figures."""
    lines = loaded_results(comparison)
    if not lines:
        return ""
    rates = sorted({result.load.rate for line in lines for result in line})
    load = lines[0][0].load
    rows = [[line[0].subject, *(_cell(line, rate) for rate in rates)] for line in lines]
    return LOADED_SECTION.format(
        seconds=load.seconds,
        threads=load.threads,
        name=folder,
        plot=UNDER_LOAD,
        figures=table(["p50 / p99, ms, at messages/s", *(f"{rate:,.0f}" for rate in rates)], rows),
    )


def _cell(line: list[Result], rate: float) -> str:
    for result in line:
        if result.load.rate == rate:
            marks = f"{figure(result.figure('p50'))} / {figure(result.figure('p99'))}"
            return marks if result.figure(KEEPS_UP) else "**no**"
    return ""


def loaded_results(comparison: Comparison) -> list[list[Result]]:
    """Those of each queue that was put under a rising load, by rate."""
    found = (
        [each for each in comparison.peers if (each.subject, each.name) == (promise.name, LOADED)]
        for promise in comparison.promises
    )
    return [line for line in found if line]
