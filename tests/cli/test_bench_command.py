from __future__ import annotations

import json

import shardq

SMALL = ("--messages", "1001", "--size", "64", "--producers", "2", "--consumers", "2", "--batch", "100")


def test_a_benchmark_shows_rates_and_latencies_and_leaves_no_queue(shell) -> None:
    found = json.loads(shell.ok("bench", "--url", shell.url, *SMALL, "--json").stdout)

    assert {name: found.pop(name) for name in ("store", "messages", "size", "producers", "consumers", "batch")} == {
        "store": "sqlite", "messages": 1_001, "size": 64, "producers": 2, "consumers": 2, "batch": 100,
    }  # fmt: skip
    assert set(found) == {"sent", "received", "latency_p50", "latency_p99"}
    assert all(value > 0 for value in found.values())
    assert found["latency_p50"] <= found["latency_p99"]
    with shardq.connect(shell.url) as client:
        assert client.queues() == ()
