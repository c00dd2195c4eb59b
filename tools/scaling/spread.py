"""How evenly a load spreads over shards, consumers and nodes: a simulation with shardq's own placement and ownership.

    .venv/bin/python tools/scaling/spread.py        writes docs/pictures/spread.png and prints its figures

Producers take turns over the shards, consumers own shards by rendezvous hashing, nodes own partitions by the hash of
their names (16 tokens each). For each number of shards: the load of the busiest over that of the mean, one being even.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from shardq.base.shard import Layout, Shard
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.placement import Placement

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "spread.png"
PRODUCERS, CONSUMERS, NODES, TOKENS, COPIES = 5, 16, 16, 16, 3
PER_CONSUMER = (1, 2, 4, 8, 16, 32)
BUNDLES = 10_000  # in a turn of the ring of five seconds, at a million messages a second by 500
SEED = 1


def main() -> None:
    random.seed(SEED)
    found = {count: spread(CONSUMERS * count) for count in PER_CONSUMER}
    print("shards  shards: busiest / mean  consumers: busiest / mean  nodes: busiest / mean")
    for count, (shards, consumers, nodes) in found.items():
        print(f"{CONSUMERS * count:6}  {shards:22.2f}  {consumers:25.2f}  {nodes:21.2f}")
    draw(found)


def spread(shards: int) -> tuple[float, float, float]:
    """Busiest over mean: of the shards, of the consumers, of the nodes."""
    layout = Layout(shards, 60, 5.0)
    placements = [Placement("orders") for _ in range(PRODUCERS)]
    loads = Counter(random.choice(placements).choose(layout, moment * 500, 500) for moment in range(BUNDLES))
    owned, stored = Counter[str](), Counter[int]()
    owners, ring = _owners(shards), _ring()
    for shard, load in loads.items():
        owned[owners[shard.number]] += load
        for node in _replicas(ring, shard):
            stored[node] += load
    return _peak(loads.values(), shards), _peak(owned.values(), CONSUMERS), _peak(stored.values(), NODES)


def _owners(shards: int) -> dict[int, str]:
    names = [f"consumer-{number}" for number in range(CONSUMERS)]
    owners: dict[int, str] = {}
    for name in names:
        ownership = Ownership(name)
        ownership.update(names)
        owners |= {number: name for number in range(shards) if ownership.is_own(number)}
    return owners


def _ring() -> list[tuple[int, int]]:
    return sorted((random.getrandbits(64), node) for node in range(NODES) for _ in range(TOKENS))


def _replicas(ring: list[tuple[int, int]], shard: Shard) -> list[int]:
    """The nodes after the partition's place on the ring."""
    token = int.from_bytes(blake2b(str(shard).encode(), digest_size=8).digest())
    at, nodes = bisect(ring, (token, 0)), dict[int, None]()
    while len(nodes) < COPIES:
        nodes[ring[at % len(ring)][1]] = None
        at += 1
    return list(nodes)


def _peak(loads: Iterable[int], members: int) -> float:
    all_of_them = list(loads)
    return max(all_of_them) / (sum(all_of_them) / members)


def draw(found: dict[int, tuple[float, float, float]]) -> None:
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        for index, (name, colour) in enumerate(
            (("shards", "#94a3b8"), ("consumers", "#c2410c"), ("nodes, three copies", "#0369a1"))
        ):
            axes.plot(
                list(found), [peaks[index] for peaks in found.values()], marker="o", label=name, color=colour
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(found), [str(count) for count in found])
        axes.set_xlabel(f"shards for each of {CONSUMERS} consumers")
        axes.set_ylabel("busiest / mean")
        axes.set_ylim(bottom=1)
        axes.set_title("How evenly a load spreads", loc="left", fontweight="bold", fontsize=11)
        axes.legend(frameon=False)
        figure.savefig(PICTURE, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
