"""The soak itself: steady load on a new queue, looked at every few seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import shardq

from ..bench.stores.latency import latencies
from ..bench.stores.report import this_machine
from ..bench.stores.stage import Place
from .crew import Crew, SoakFailed
from .plan import Plan
from .record import Record
from .sample import Latency, Sample, append
from .site import Site, open_site

__all__ = ["SAMPLES", "soak"]

SAMPLES = "samples.jsonl"
QUEUE = "soak"
DRAIN_SECONDS = 60.0


def soak(plan: Plan, folder: Path, say: Callable[[str], None]) -> Record:
    """Run it; the samples are written to the folder on the way. Raises PeerMissing where there is no server."""
    with open_site(plan.store) as site, shardq.connect(site.url) as client:
        client.create_schema()
        place = Place(site.url, client.create_queue(QUEUE).name)
        crew, failure = Crew(place, plan), ""
        began = time.monotonic()
        try:
            with crew:
                crew.begin()
                _watch(crew, site, client.queue(QUEUE), plan, lambda sample: _keep(sample, folder, say))
                crew.drain(DRAIN_SECONDS)
        except SoakFailed as reason:
            failure = str(reason)
        except KeyboardInterrupt:
            failure = "it was broken off"
        return Record(
            plan=plan,
            machine=this_machine(),
            software=site.software,
            sent=crew.sent,
            received=crew.received,
            seconds=time.monotonic() - began,
            failure=failure,
        )


def _watch(crew: Crew, site: Site, queue: shardq.Queue, plan: Plan, keep: Callable[[Sample], None]) -> None:
    began = time.monotonic()
    number = 1
    while (moment := number * plan.sample_seconds) <= plan.seconds:
        crew.listen(began + moment - time.monotonic())
        keep(_sample(crew, site, queue, time.monotonic() - began))
        number += 1


def _sample(crew: Crew, site: Site, queue: shardq.Queue, at: float) -> Sample:
    counts, usage = queue.counts(), site.usage
    return Sample(
        at=round(at, 3),
        sent=crew.sent,
        received=crew.received,
        backlog=counts.ready + counts.delayed + counts.in_flight,
        latency=_latency(crew.take_seconds()),
        client_bytes=crew.memory(),
        server_bytes=usage.resident_bytes() if usage.processes else None,
        file_bytes=usage.file_bytes() if usage.folders else None,
        tombstones=site.tombstones(),
        machine_load=round(os.getloadavg()[0], 2),
    )


def _latency(seconds: list[float]) -> Latency | None:
    if not seconds:
        return None
    found = {figure.name: round(figure.value, 3) for figure in latencies(seconds).figures}
    return Latency(found["p50"], found["p99"], found["p99.9"], found["p100"])


def _keep(sample: Sample, folder: Path, say: Callable[[str], None]) -> None:
    append(sample, folder / SAMPLES)
    p99 = f"p99 {sample.latency.p99:.0f} ms" if sample.latency else "nothing received"
    say(f"{sample.at:.0f} s: {sample.sent:,} sent, {sample.received:,} received, {p99}")
