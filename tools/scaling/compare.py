"""What `shardq plan` predicts for a load, beside what that load takes here.

    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/compare.py --store cassandra --url {url}
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/compare.py --store mongodb --url {url}
    python tools/servers/postgresql.py run -- .venv/bin/python tools/scaling/compare.py --store postgresql --url {url}
    .venv/bin/python tools/scaling/compare.py --store sqlite --url sqlite:///queue.db

The queue has the layout of the plan, and as many producers and consumers as it says. Microseconds of processor time for
each message are compared, the lowest of the repetitions: what else the machine does makes them more, so run it when the
machine is quiet. The exit code is 1 when one is off by more than --most.
"""

from __future__ import annotations

import argparse
import os
import sys

from loads import Meter, Paced, run_served
from measure import warm_up

import shardq
from shardq.planning import Plan, Wanted, plan

LAYOUT = ("shards", "time_shards", "time_shard_seconds")


def main() -> None:
    options = _options()
    worst = 1.0
    with shardq.connect(options.url) as client:
        warm_up(client, Meter())
    for size in options.size:
        for rate in options.rate:
            found = plan(Wanted(rate, size, options.latency, options.store, copies=1))
            rounds = [_round(options.url, found, options.seconds) for _ in range(options.repeats)]
            print(
                f"{options.store}, {rate:,g} messages of {size:,} bytes a second: {_layout(found)}",
                flush=True,
            )
            for side, cost in _predicted(found).items():
                measured = min(each[side] for each in rounds)
                if cost or measured:
                    off = max(measured, cost) / max(1e-9, min(measured, cost))
                    worst = max(worst, off)
                    print(
                        f"  {side:9} predicted {cost:7.2f} us, measured {measured:7.2f} us: off by {off:.2f}"
                    )
    waiting = os.getloadavg()[1]
    print(f"{waiting:.0f} processes shared {os.cpu_count()} cores: the more do, the more each message takes")
    sys.exit(worst > options.most)


def _predicted(found: Plan) -> dict[str, float]:
    """Microseconds of processor time of a message."""
    cores = {use.resource: use.cores for use in found.uses}
    servers = sum(cores.get(name, 0.0) for name in ("servers' processors", "the primary's processors"))
    sides = {
        "producers": cores["producers' processors"],
        "consumers": cores["consumers' processors"],
        "servers": servers,
    }
    return {side: 1e6 * busy / found.wanted.rate for side, busy in sides.items()}


def _layout(found: Plan) -> str:
    names = ("producers", "consumers", "bundle_messages", "claim_messages", *LAYOUT[:2])
    return ", ".join(f"{name.replace('_', ' ')} {found.value(name):g}" for name in names)


def _round(url: str, found: Plan, seconds: float) -> dict[str, float]:
    names = ("bundle_messages", "claim_messages", "producers", "consumers", "shards", "time_shards")
    bundle, claim, producers, consumers, shards, time_shards = (int(found.value(name)) for name in names)
    layout = {
        "shards": shards,
        "time_shards": time_shards,
        "time_shard_seconds": found.value("time_shard_seconds"),
    }
    load = Paced(
        found.wanted.rate,
        found.wanted.size,
        bundle,
        claim,
        producers=producers,
        consumers=consumers,
        layout=layout,
    )
    took = run_served(url, load, seconds)
    return {
        "producers": took.producers.of_message,
        "consumers": took.consumers.of_message,
        "servers": took.servers,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, nargs="+", default=[2_000.0, 10_000.0])
    parser.add_argument("--size", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
