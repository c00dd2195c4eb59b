"""The part of the page that compares queues."""

from __future__ import annotations

from .cells import table, times, with_spread
from .comparison import Comparison
from .rounds import DISK, KINDS, PROCESSOR, RECEIVE, RECEIVE_SINGLES
from .singles import SENDERS, SINGLE_KINDS
from .stores.result import Result

SECTION = """\
## Beside other queues

Messages per second of 512 B: one client process, the server (where there is one) beside it on the same machine,
everybody's files on the same disk, rounds interleaved. {sizes}{more}

{figures}
![Throughput of each queue]({name}/throughput.png)

What was waited for differs, so compare like with like:

{promises}"""
MORE = """
Durability is what a send waits for on its way to the disk. Processor time is that of a million messages sent in bulk,
received and acked, in seconds of a core, of the client and of its server; what a server does later is not in it. Files
are what the queue's files grew by while a million messages waited, in the first round, MongoDB's after a checkpoint;
what other servers had in memory only is not in it. Slow queues got few messages, so what their files take in any case
shows more. A dash: they shrank, as the server compacted what was there before."""
RATIOS = """
How many times as fast shardq is, the median over the rounds of the ratio within each round:

{ratios}"""
ONE_BY_ONE = """
### One message at a time

Messages per second: {few} messages in each round, sent by {senders} threads of the process that wait for each of their
sends; received and acked one after the other; popped, which is at most once, in one call each; acked by threads that
hold them. A dash stands for what a queue does not offer, or is not asked.

{figures}"""
COSTS = {PROCESSOR: "processor time, s", DISK: "files, MB"}


def peer_section(comparison: Comparison, folder: str) -> str:
    """Tables of figures, of promises and, where shardq has one store, of ratios."""
    costs = {kind: heading for kind, heading in COSTS.items() if _has(comparison, kind)}
    text = SECTION.format(
        name=folder,
        sizes=_sizes(comparison),
        more=MORE if costs else "",
        figures=_figures(comparison, costs),
        promises=table(
            ["queue", "a send is done", "receive and ack"],
            [[promise.name, promise.sends, promise.receives] for promise in comparison.promises],
            numbers_from=3,
        ),
    )
    text += _one_by_one(comparison)
    if comparison.store != "all":
        text += RATIOS.format(ratios=_ratios(comparison))
    return text + "".join(f"\nLeft out: {reason}.\n" for reason in comparison.missing)


def _sizes(comparison: Comparison) -> str:
    """How much a round of shardq is; slow queues get fewer messages in bulk."""
    first = comparison.promises[0].name
    bulk, single = comparison.peer(first, RECEIVE), comparison.peer(first, RECEIVE_SINGLES)
    if bulk is None or single is None:
        return ""
    return (
        f"In each round shardq\nsends {bulk.load.messages:,} in bulk and receives them by {bulk.load.batch:,}, then "
        f"sends {single.load.messages:,} one by one and receives them by {single.load.batch:,}."
    )


def _has(comparison: Comparison, kind: str) -> bool:
    return any(result.name == kind for result in comparison.peers)


def _figures(comparison: Comparison, costs: dict[str, str]) -> str:
    durable = any(promise.durability for promise in comparison.promises)
    kinds = (*KINDS, *costs)
    rows = [
        [
            promise.name,
            *([promise.durability] if durable else []),
            *(with_spread(_not_negative(comparison.peer(promise.name, kind))) for kind in kinds),
        ]
        for promise in comparison.promises
    ]
    headings = ["queue", *(["durability"] if durable else []), *KINDS, *costs.values()]
    return table(headings, rows, numbers_from=len(headings) - len(kinds))


def _not_negative(result: Result | None) -> Result | None:
    """None for files that are smaller than before: what others had left there was compacted meanwhile."""
    return result if result is not None and result.median >= 0 else None


def _one_by_one(comparison: Comparison) -> str:
    kinds = [kind for kind in SINGLE_KINDS if _has(comparison, kind)]
    if not kinds:
        return ""
    few = next(result.load.messages for result in comparison.peers if result.name in kinds)
    rows = [
        [promise.name, *(with_spread(comparison.peer(promise.name, kind)) for kind in kinds)]
        for promise in comparison.promises
    ]
    return ONE_BY_ONE.format(few=few, senders=SENDERS, figures=table(["queue", *kinds], rows))


def _ratios(comparison: Comparison) -> str:
    rows = [
        [promise.name, *(times(comparison.ratio(promise.name, kind)) for kind in KINDS)]
        for promise in comparison.promises[1:]
    ]
    return table(["shardq /", *KINDS], rows)
