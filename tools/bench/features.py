"""What each feature costs a message, beside a plain one.

    make bench-features   # on every store; writes docs/benchmarks-features.md
    python -m tools.bench.features sqlite:////tmp/costs.db   # on one; prints a table

Each round sends the same bodies through a new queue of every kind, in turn, and receives and acks them. The cost of a
kind is its time divided by that of the plain messages of the same round. With ``--before "NAME=PYTHON"``, an
interpreter that has an older shardq, plain messages of both versions are measured too, each in a process of its own;
it may be given several times.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import msgspec

import shardq
from tools.bench import cells, feature_times
from tools.bench.feature_times import GROUPS, KINDS, PLAIN, Times, measure
from tools.bench.stores.report import this_machine

NOW = "plain, now"


Way = Callable[[Times], float]
WAYS: dict[str, Way] = {"in bulk": lambda each: each.bulk, "one by one": lambda each: each.single}


def measure_elsewhere(url: str, python: str, options: argparse.Namespace) -> Times:
    """Plain messages by the shardq of an interpreter, in a process and a database of its own."""
    own = re.sub(r"(\.db|\?|$)", rf"_{crc32(python.encode()):x}\1", url, count=1)
    script = str(Path(feature_times.__file__).resolve())
    command = [python, script, own, str(options.messages), str(options.singles)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return msgspec.json.decode(done.stdout, type=Times)


def compare(url: str, options: argparse.Namespace) -> dict[str, list[Times]]:
    """What each kind took in each round; a first round, which warms up, does not count."""
    found: dict[str, list[Times]] = {}
    scheme, chosen = urlsplit(url).scheme, {PLAIN, *options.only} if options.only else set(KINDS)
    kinds = sorted(name for name in chosen if scheme in KINDS[name].stores)
    with shardq.connect(url) as client:
        for number in range(options.rounds + 1):
            order = Random(number).sample(kinds, len(kinds))  # none is always the first
            taken = {
                name: measure(client, url, KINDS[name], options.messages, options.singles) for name in order
            }
            for name, python in (*options.before, *([(NOW, sys.executable)] if options.before else ())):
                taken[name] = measure_elsewhere(url, python, options)
            for name, times in taken.items() if number else ():
                found.setdefault(name, []).append(times)
            print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
    return found


class Measured(msgspec.Struct, frozen=True):
    """What was measured on a store, by kind."""

    store: str
    times: dict[str, list[Times]]

    def cost(self, kind: str, how: Way, beside: str = PLAIN) -> str:
        """The median of the rounds' ratios, the lowest and the highest in brackets; a dash where the store has none."""
        if kind not in self.times:
            return "-"
        ratios = [
            how(mine) / how(other) for mine, other in zip(self.times[kind], self.times[beside], strict=True)
        ]
        return f"**{median(ratios):.2f}x** ({min(ratios):.2f} .. {max(ratios):.2f})"

    def rate(self, how: Way) -> str:
        """Plain messages that are sent, received and acked in a second."""
        return f"**{median(1 / how(each) for each in self.times[PLAIN]):,.0f}/s**"


def table(stores: Sequence[Measured], options: argparse.Namespace) -> list[str]:
    """A row for each kind that was measured, and two columns for each store."""
    columns = [(store, name, how) for store in stores for name, how in WAYS.items()]
    measured = [kind for kind in KINDS if any(kind in store.times for store in stores) and kind != PLAIN]
    headings = ["", *(f"{store.store}, {name}" for store, name, _ in columns)]
    rows = [
        [PLAIN, *(store.rate(how) for store, _, how in columns)],
        *([kind, *(store.cost(kind, how) for store, _, how in columns)] for kind in measured),
        *(
            [f"{NOW}, beside {old}", *(store.cost(NOW, how, old) for store, _, how in columns)]
            for old, _ in options.before
        ),
    ]
    return cells.table(headings, rows).splitlines()


def completed(text: str, rows: Sequence[str], options: argparse.Namespace) -> str:
    """A page in which the rows of the kinds that were measured by themselves are new, and all others as they were."""
    lines = text.splitlines()
    named = {line.split(" | ")[0].strip("| "): number for number, line in enumerate(lines)}
    places = [named[kind] for kind in KINDS if kind in named]
    new = {row.split(" | ")[0].strip("| "): row for row in rows}
    kept = {
        kind: new[kind] if kind in options.only else lines[named[kind]] for kind in (*named, *options.only)
    }
    lines[min(places) : max(places) + 1] = [kept[kind] for kind in KINDS if kind in kept]
    return "\n".join(lines) + "\n" + LATER.format(kinds="; ".join(options.only), **facts(options))


def page(stores: Sequence[Measured], options: argparse.Namespace) -> str:
    """docs/benchmarks-features.md."""
    return PAGE.format(
        table="\n".join(table(stores, options)),
        groups=GROUPS,
        before=BEFORE_NOTE if options.before else "",
        **facts(options),
    )


def facts(options: argparse.Namespace) -> dict[str, Any]:
    """How it was measured."""
    return {
        "machine": this_machine(),
        "load": os.getloadavg()[2],
        "rounds": options.rounds,
        "messages": options.messages,
        "singles": options.singles,
    }


def urls_of_servers(folder: str) -> list[str]:
    """A new SQLite file, and the servers in the environment."""
    servers = [os.environ.get(f"SHARDQ_TEST_{store}_URL") for store in ("CASSANDRA", "MONGODB", "POSTGRESQL")]
    return [f"sqlite:///{folder}/costs.db", *(url for url in servers if url)]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="stores; queues are made and deleted there; all that are known"
    )
    parser.add_argument("--messages", type=int, default=10_000, help="in bulk; 10,000")
    parser.add_argument("--singles", type=int, default=200, help="one by one; 200")
    parser.add_argument("--rounds", type=int, default=5, help="5")
    parser.add_argument(
        "--before",
        metavar="NAME=PYTHON",
        type=lambda text: tuple(text.split("=", 1)),
        action="append",
        default=[],
        help="an interpreter with an older shardq",
    )
    parser.add_argument(
        "--only",
        metavar="KIND",
        choices=[kind for kind in KINDS if kind != PLAIN],
        action="append",
        default=[],
        help="beside plain ones; several times; of a page, their rows only are written",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write this page; without, print the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder:
        stores = [
            Measured(STORES[url.partition(":")[0]], compare(url, options))
            for url in options.urls or urls_of_servers(folder)
        ]
    if options.page and options.only:
        options.page.write_text(completed(options.page.read_text(), table(stores, options), options))
    elif options.page:
        options.page.write_text(page(stores, options))
    else:
        print("\n".join(table(stores, options)))


STORES = {"sqlite": "SQLite", "cassandra": "Cassandra", "mongodb": "MongoDB", "postgresql": "PostgreSQL"}
PAGE = """\
# What each feature costs

Made by `make bench-features`; not edited by hand. Measured on {machine}.
At the end the load of the last 15 minutes was {load:.0f}: above {machine.cores}, there was other work beside it.

In each of {rounds} rounds {messages:,} messages of 512 B are sent in bulk, received by 500 and acked; then {singles:,}
are sent, received and acked one by one. Each kind has a new queue. A cost is the time of a kind divided by that of the
plain messages of the same round: the median, the lowest and the highest in brackets. The first row says how many plain
messages go all the way in a second.

{table}

- `dedupe_key` and `unique_key`: every message has a key of its own.
- Groups: messages of {groups:,} groups in turn.
- The next occurrence of a schedule that is not due is a year away. An occurrence is decided upon and sent by the
  consumer that receives it; to create the schedules is not measured. There are at most 200 at a time.
- A large body has one part, as small as the others' bodies. At most 200 are sent, one by one in both columns.
- In a transaction of the application all messages are sent in bulk, and those of a batch acked; or a single one.
- The limits are so high that they hold nothing back. What is measured is the counting.
{before}"""
LATER = """\
- Measured later and by themselves, in {rounds} rounds of {messages:,} messages in bulk and {singles:,} one by one, when
  the load of the last 15 minutes was {load:.0f}: {kinds}.
"""
BEFORE_NOTE = """\
- The last rows are the time of plain messages, divided by that with an older shardq in the same round, each in a
  process of its own. That of November 21, 2026 had no groups, unique keys, limits, events and topics; that of
  November 23 no topics, schedules, large bodies and transactions.
"""

if __name__ == "__main__":
    main()
