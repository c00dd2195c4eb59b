"""Unit costs of a store, in processor time: what a bundle, a message, a kilobyte and a claim cost client and server.

    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/measure.py --store cassandra --url {url}
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/measure.py --store mongodb --url {url}
    .venv/bin/python tools/scaling/measure.py --store sqlite --url sqlite:///queue.db

Processor time is counted instead of the clock, so that a busy machine changes the figures little. Sends and receives of
several sizes are repeated in turn; unit costs are the non-negative least squares over all of them. The result replaces
the store's part of shardq/planning/unit_costs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

import shardq

COSTS = Path(__file__).parents[2] / "shardq" / "planning" / "unit_costs.json"
SIZES = (100, 1_000, 4_000)  # bytes of a body
BUNDLES = (50, 250)  # messages of a bundle
MESSAGES = 10_000
ROUNDS = 3
PER_CLAIM = 500
PROBES = 40  # claims of which the time by the clock is taken


class Sample(NamedTuple):
    """What something cost: microseconds of processor time of client and server, for so many of each unit."""

    units: tuple[float, ...]
    client: float
    server: float


class Meter:
    """Processor time of this process and of the servers."""

    def __init__(self) -> None:
        self._servers = _servers()

    def of(self, do: Callable[[], object]) -> tuple[float, float]:
        client, server = time.process_time(), self._server()
        do()
        return 1e6 * (time.process_time() - client), 1e6 * (self._server() - server)

    def _server(self) -> float:
        times = [process.cpu_times() for process in self._servers]
        return float(sum(each.user + each.system for each in times))


def main() -> None:
    options = _options()
    meter = Meter()
    client = shardq.connect(options.url)
    sends, receives = [], []
    for number in range(ROUNDS + 1):  # the first round warms up
        for size in SIZES:
            for bundle in BUNDLES:
                sent, received = _once(client, meter, size, bundle)
                if number:
                    sends.append(sent)
                    receives.append(received)
        print("round", number, "of", ROUNDS, flush=True)
    found = {
        "send": _fit(("bundle", "message", "kilobyte"), sends),
        "receive": _fit(("claim", "bundle", "message", "kilobyte"), receives),
        **_clocked(client),
        "source": _source(options),
    }
    _keep(options.store, found)


def _once(client: shardq.Client, meter: Meter, size: int, bundle: int) -> tuple[Sample, Sample]:
    queue = client.create_queue(f"m{os.urandom(6).hex()}", shards=4, time_shards=1)
    body = os.urandom(size)
    with queue.producer(bundle_messages=bundle, bundle_bytes=2**22) as producer:
        sent = meter.of(lambda: producer.send_many(body for _ in range(MESSAGES)))
    claims = 0

    def receive() -> None:
        nonlocal claims
        with queue.consumer() as consumer:
            for batch in consumer.batches(PER_CLAIM, wait=0):
                batch.ack()
                claims += 1

    received = meter.of(receive)
    client.delete_queue(queue.name)
    bundles, kilobytes = MESSAGES / bundle, MESSAGES * size / 1000
    return (
        Sample((bundles, MESSAGES, kilobytes), *sent),
        Sample((claims, bundles, MESSAGES, kilobytes), *received),
    )


def _clocked(client: shardq.Client) -> dict[str, float]:
    """Milliseconds of an append of 100 messages, and of a claim of them with its ack, the fastest tenth of each.

    That is what they take when nothing else is in the way.
    """
    queue = client.create_queue(f"m{os.urandom(6).hex()}", shards=1, time_shards=1)
    bodies = [bytes(100)] * 100
    with queue.producer() as producer, queue.consumer() as consumer:
        appends = [_milliseconds(lambda: producer.send_many(bodies)) for _ in range(PROBES)]
        claims = [_milliseconds(lambda: consumer.receive(100).ack()) for _ in range(PROBES)]
    client.delete_queue(queue.name)
    fastest = [statistics.quantiles(times, n=10)[0] for times in (appends, claims)]
    return dict(zip(("append_ms", "claim_and_ack_ms"), (round(each, 2) for each in fastest), strict=True))


def _milliseconds(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return 1e3 * (time.perf_counter() - start)


def _fit(units: Sequence[str], samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    matrix = np.array([sample.units for sample in samples])
    return {
        side: dict(
            zip(units, _non_negative(matrix, np.array([getattr(s, side) for s in samples])), strict=True)
        )
        for side in ("client", "server")
    }


def _non_negative(matrix: np.ndarray, values: np.ndarray) -> list[float]:
    """The best solution without a negative part: least squares over every choice of columns."""
    if not values.all():  # no server, or too little for its clock
        return [0.0] * matrix.shape[1]
    best, least = [0.0] * matrix.shape[1], float("inf")
    for count in range(1, matrix.shape[1] + 1):
        for chosen in combinations(range(matrix.shape[1]), count):
            part, *_ = np.linalg.lstsq(matrix[:, chosen] / values[:, None], np.ones(len(values)), rcond=None)
            if (part < 0).any():
                continue
            miss = float((((matrix[:, chosen] @ part) / values - 1) ** 2).sum())
            if miss < least - 1e-12:
                least, best = miss, [0.0] * matrix.shape[1]
                for column, value in zip(chosen, part, strict=True):
                    best[column] = round(float(value), 3)
    return best


def _servers() -> list[psutil.Process]:
    """Those of the command that runs this: `tools/servers/cassandra.py run`, or that of mongodb.py."""
    parent = psutil.Process().parent()
    beside = parent.children() if parent is not None else []
    return [
        process
        for process in beside
        if any("CassandraDaemon" in word or Path(word).name == "mongod" for word in process.cmdline())
    ]


def _source(options: argparse.Namespace) -> str:
    return (
        f"tools/scaling/measure.py --store {options.store}, shardq {version('shardq')}, "
        f"CPython {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), one node"
    )


def _keep(store: str, found: dict[str, object]) -> None:
    costs = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    costs[store] = found
    COSTS.write_text(json.dumps(costs, indent=2, sort_keys=True) + "\n")
    print(json.dumps(found, indent=2))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--url", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
