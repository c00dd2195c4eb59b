"""Unit costs of a store, in processor time: what a bundle, a message, a kilobyte and a claim cost client and server.

    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/measure.py --store cassandra --url {url}
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/measure.py --store mongodb --url {url}
    python tools/servers/postgresql.py run -- .venv/bin/python tools/scaling/measure.py --store postgresql --url {url}
    .venv/bin/python tools/scaling/measure.py --store sqlite --url sqlite:///queue.db

Processor time is counted instead of the clock. Producers and consumers at work beside each other (loads.py) give what
they and the servers take when consumers keep up: these wake up for each bundle, with cold caches. Queues that are
filled and then emptied give what busy servers take, and what each further bundle of a claim takes. Of repetitions
the lowest counts: what else the machine does makes them more. Unit costs are the non-negative least squares over all
sizes. They replace the store's part of shardq/planning/unit_costs.json. compare.py says how well they predict.
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
from operator import mul
from pathlib import Path
from typing import NamedTuple

import numpy as np
from loads import Meter, Paced, run_served, run_waiting

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
    with shardq.connect(options.url) as client:
        warm_up(client, meter)
        clocked = _clocked(client)
        drained = [_drain(client, meter, bundle, size, options.repeats) for bundle, size in DRAINED]
    waits = [run_waiting(options.url, meter, LAYOUT, SECONDS) for _ in range(options.repeats)]
    waiting_client, waiting_server = (round(min(each)) for each in zip(*waits, strict=True))
    paced: list[_Paced] = []
    for bundle, size in SIZES:
        paced.append(_pace(options.url, bundle, size, waiting_client, options.repeats))
        print(paced[-1], flush=True)
    send_server = _fit(SEND, [each.sending for each in drained])
    found = {
        "send": {"client": _fit(SEND, [each.producer for each in paced]), "server": send_server},
        "receive": {
            "client": _fit_receive([each.consumer for each in paced], [each.consumer for each in drained]),
            "server": _fit(
                RECEIVE,
                [each.receiving(send_server) for each in paced] + [each.receiving for each in drained],
            ),
        },
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


class _Paced(NamedTuple):
    """What a producer, a consumer and the servers take of a bundle beside each other."""

    producer: Sample
    consumer: Sample
    servers: float

    def receiving(self, sending: dict[str, float]) -> Sample:
        """What the servers take to have it received, where this is what they take of sends."""
        send = sum(map(mul, sending.values(), self.producer.units))
        return Sample(self.consumer.units, max(min(1.0, self.servers), self.servers - send))


class _Drained(NamedTuple):
    """What servers and a consumer take of a bundle of a backlog."""

    sending: Sample
    receiving: Sample
    consumer: Sample


def _pace(url: str, bundle: int, size: int, waiting: float, repeats: int) -> _Paced:
    load = Paced(bundle * BUNDLES_A_SECOND, size, bundle, PER_CLAIM, layout=LAYOUT)
    rounds = [run_served(url, load, SECONDS) for _ in range(repeats)]
    producer = min(each.producers.of_message for each in rounds)
    consumer = min((each.consumers for each in rounds), key=lambda taken: taken.of_message)
    kilobytes = bundle * size / 1000
    claims = consumer.turns * bundle / max(1, consumer.messages)
    return _Paced(
        Sample((1, bundle, kilobytes), producer * bundle),
        Sample(
            (claims, 1, bundle, kilobytes),
            max(1.0, consumer.of_message * bundle - waiting / BUNDLES_A_SECOND),
        ),
        min(each.servers for each in rounds) * bundle,
    )


def _drain(client: shardq.Client, meter: Meter, bundle: int, size: int, repeats: int) -> _Drained:
    rounds = [
        _filled_and_emptied(client, meter, bundle, size) for _ in range(repeats + 1)
    ]  # the first warms up
    sending, consuming, receiving, claims = (
        min(each) / DRAINED_BUNDLES for each in zip(*rounds[1:], strict=True)
    )
    kilobytes = bundle * size / 1000
    units = claims, 1, bundle, kilobytes
    return _Drained(
        Sample((1, bundle, kilobytes), sending), Sample(units, receiving), Sample(units, consuming)
    )


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


def _fit_receive(paced: Sequence[Sample], drained: Sequence[Sample]) -> dict[str, float]:
    """Fit what is taken where consumers keep up. Each claim has a bundle there: a backlog tells what one more takes."""
    bundle = _fit(RECEIVE, drained)["bundle"]
    rest = [
        Sample((claims, *others), max(min(1.0, cost), cost - bundle)) for (claims, _, *others), cost in paced
    ]
    claim, message, kilobyte = _fit(("claim", "message", "kilobyte"), rest).values()
    return dict(zip(RECEIVE, (claim, bundle, message, kilobyte), strict=True))


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
