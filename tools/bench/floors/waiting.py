"""What waiting costs at least: clients that wait for a message of an empty queue, beside idle consumers of shardq."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from ..database import Running
from ..idling import beside_server, idle_with_server
from ..stores.consumers import SETTLING_SECONDS
from ..stores.load import Load
from ..stores.processes import Job, Ready
from ..stores.result import Sample
from ..stores.stage import Stage
from ..stores.wording import IDLE, IDLE_WITH_SERVER
from ..usage import Usage
from .floor import Floor, Measure, Size, Taken


def floor(store: str, server: Running | None, size: Size, folder: Path) -> Floor:
    """Percent of a core of clients and server, the server's above what it takes alone."""
    usage = (server.usage if server else None) or Usage()
    stage = Stage(server.url) if server else Stage(folder=folder)
    waits: Mapping[str, Sequence[Job]] = import_module(f"{__package__}.{store}_waits").clients(size, folder)
    load = Load(processes=size.processes, seconds=size.seconds)

    def measure(sample: Callable[[], Sample]) -> Measure:
        return lambda: _taken(sample(), served=server is not None)

    def bare(jobs: Sequence[Job]) -> Measure:
        return measure(lambda: beside_server(jobs, usage, size.seconds))

    return Floor(
        kind=IDLE_WITH_SERVER if server else IDLE,
        own=measure(lambda: idle_with_server(stage, usage, load)),
        bare={what: bare(jobs) for what, jobs in waits.items()},
        is_rate=False,
    )


def polling(ready: Ready, poll: Callable[[], object], first: float, interval: float, seconds: float) -> float:
    """Seconds of a core that this process takes while it polls, the first time after so long, then in intervals."""
    began = ready()
    _poll_until(began + SETTLING_SECONDS, poll, began + first, interval)
    before, until = time.process_time(), time.monotonic() + seconds
    _poll_until(until, poll, time.monotonic() + first, interval)
    return time.process_time() - before


def _poll_until(until: float, poll: Callable[[], object], moment: float, interval: float) -> None:
    while moment < until:
        time.sleep(max(0.0, moment - time.monotonic()))
        poll()
        moment += interval
    time.sleep(max(0.0, until - time.monotonic()))


def _taken(sample: Sample, *, served: bool) -> Taken:
    clients = next(figure.value for figure in sample.figures if figure.name == "clients")
    return Taken(sample.value, clients, sample.value - clients if served else None)
