"""Unit costs of a store, in processor time: what a bundle, a message, a kilobyte and a claim cost client and server.

    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/measure.py --store cassandra --url {url}
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/measure.py --store mongodb --url {url}
    .venv/bin/python tools/scaling/measure.py --store sqlite --url sqlite:///queue.db

Processor time is counted instead of the clock. Producers and consumers at work beside each other (loads.py) give what
clients take when consumers keep up. Queues that are filled and then emptied give what servers take, and what a claim of
several bundles takes. Of repetitions the lowest counts: what else the machine does makes them more. Unit costs are the
non-negative least squares over all sizes. They replace the store's part of shardq/planning/unit_costs.json. compare.py
says how well they predict.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from loads import Meter, Paced, run_paced, run_waiting

import shardq

COSTS = Path(__file__).parents[2] / "shardq" / "planning" / "unit_costs.json"
SIZES = ((1, 100), (20, 100), (60, 4_000), (250, 1_000), (500, 100))
"""Messages of a bundle, and bytes of a body."""
BUNDLES_A_SECOND = 20
SECONDS = 3.0
DRAINED = ((1, 100), (60, 4_000), (250, 1_000), (500, 100))
DRAINED_BUNDLES = 80
WARM_UPS = 5
PER_CLAIM = 500
LAYOUT: dict[str, float] = {"shards": 8, "time_shards": 10}
PROBES = 1_000  # claims of which the time by the clock is taken
SEND, RECEIVE = ("bundle", "message", "kilobyte"), ("claim", "bundle", "message", "kilobyte")


class Sample(NamedTuple):
    """Microseconds of processor time, for so many of each unit."""

    units: tuple[float, ...]
    cost: float


def main() -> None:
    options = _options()
    meter = Meter()
    sent: dict[str, list[Sample]] = {"client": [], "server": []}
    received: dict[str, list[Sample]] = {"client": [], "server": []}
    with shardq.connect(options.url) as client:
        warm_up(client, meter)
        clocked = _clocked(client)
        for bundle, size in DRAINED:
            sending, receiving, consuming = _drain(client, meter, bundle, size, options.repeats)
            sent["server"].append(sending)
            received["server"].append(receiving)
            received["client"].append(consuming)
    waits = [run_waiting(options.url, meter, LAYOUT, SECONDS) for _ in range(options.repeats)]
    waiting_client, waiting_server = (round(min(each)) for each in zip(*waits, strict=True))
    for bundle, size in SIZES:
        producing, consuming = _pace(options.url, bundle, size, waiting_client, options.repeats)
        sent["client"].append(producing)
        received["client"].append(consuming)
        print(f"{bundle} messages of {size} bytes", flush=True)
    found = {
        "send": {side: _fit(SEND, samples) for side, samples in sent.items()},
        "receive": {side: _fit(RECEIVE, samples) for side, samples in received.items()},
        **clocked,
        "waiting_client": waiting_client,
        "waiting_server": waiting_server,
        "source": _source(options),
    }
    _keep(options.store, found)


def warm_up(client: shardq.Client, meter: Meter) -> None:
    """Send and receive for a while, as a server that was just started takes several times as long."""
    for bundle, size in DRAINED * WARM_UPS:
        _filled_and_emptied(client, meter, bundle, size)


def _pace(url: str, bundle: int, size: int, waiting: float, repeats: int) -> tuple[Sample, Sample]:
    """Measure what a producer and a consumer take beside each other."""
    load = Paced(bundle * BUNDLES_A_SECOND, size, bundle, PER_CLAIM, layout=LAYOUT)
    rounds = [run_paced(url, load, SECONDS) for _ in range(repeats)]
    producer, consumer = (min(each, key=lambda taken: taken.of_message) for each in zip(*rounds, strict=True))
    kilobytes = bundle * size / 1000
    claims = consumer.turns * bundle / max(1, consumer.messages)
    of_bundle = max(1.0, consumer.of_message * bundle - waiting / BUNDLES_A_SECOND)
    return (
        Sample((1, bundle, kilobytes), producer.of_message * bundle),
        Sample((claims, 1, bundle, kilobytes), of_bundle),
    )


def _drain(
    client: shardq.Client, meter: Meter, bundle: int, size: int, repeats: int
) -> tuple[Sample, Sample, Sample]:
    """Measure what servers take of sends and of receiving, and a consumer that finds several bundles at a time."""
    rounds = [
        _filled_and_emptied(client, meter, bundle, size) for _ in range(repeats + 1)
    ]  # the first warms up
    sending, consuming, receiving, claims = (
        min(each) / DRAINED_BUNDLES for each in zip(*rounds[1:], strict=True)
    )
    kilobytes = bundle * size / 1000
    units = claims, 1, bundle, kilobytes
    return Sample((1, bundle, kilobytes), sending), Sample(units, receiving), Sample(units, consuming)


def _filled_and_emptied(
    client: shardq.Client, meter: Meter, bundle: int, size: int
) -> tuple[float, float, float, int]:
    """Microseconds of the servers for the sends, of the consumer, of the servers for it, and its claims."""
    queue = client.create_queue(f"m{os.urandom(6).hex()}", **LAYOUT)  # type: ignore[arg-type]
    bodies = [os.urandom(size) for _ in range(bundle)]
    claims = 0
    with queue.producer(bundle_messages=bundle, bundle_bytes=2**22) as producer, queue.consumer() as consumer:

        def receive() -> None:
            nonlocal claims
            for batch in consumer.batches(PER_CLAIM, wait=0):
                assert all(message.body for message in batch)
                batch.ack()
                claims += 1

        sending = meter.of(lambda: [producer.send_many(bodies) for _ in range(DRAINED_BUNDLES)])
        before = time.process_time()
        receiving = meter.of(receive)
        consuming = 1e6 * (time.process_time() - before)
    client.delete_queue(queue.name)
    return sending, consuming, receiving, claims


def _clocked(client: shardq.Client) -> dict[str, float]:
    """Milliseconds of an append of 100 messages, and of a claim of them with its ack, the fastest of each.

    That is what they take when nothing else is in the way.
    """
    queue = client.create_queue(f"m{os.urandom(6).hex()}", shards=1, time_shards=1)
    bodies = [bytes(100)] * 100
    with queue.producer() as producer, queue.consumer() as consumer:
        appends = [_milliseconds(lambda: producer.send_many(bodies)) for _ in range(PROBES)]
        claims = [_milliseconds(lambda: consumer.receive(100).ack()) for _ in range(PROBES)]
    client.delete_queue(queue.name)
    return {"append_ms": round(min(appends), 2), "claim_and_ack_ms": round(min(claims), 2)}


def _milliseconds(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return 1e3 * (time.perf_counter() - start)


def _fit(units: Sequence[str], samples: Sequence[Sample]) -> dict[str, float]:
    matrix = np.array([sample.units for sample in samples])
    return dict(zip(units, _non_negative(matrix, np.array([sample.cost for sample in samples])), strict=True))


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
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
