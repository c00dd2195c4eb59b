"""What waiting costs the server: consumers of an empty queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from shardq.core.settings import QueueSettings

from .stores.consumers import SETTLING_SECONDS, idling
from .stores.load import FULL, QUICK, Load
from .stores.processes import Job, run_alone, run_together
from .stores.result import Figure, Result, Sample, summarize
from .stores.stage import Stage
from .stores.wording import IDLE_WITH_SERVER
from .usage import Usage

UNIT = "% of a core"
ROUNDS = 3


def measure_idle(stage: Stage, usage: Usage, *, quick: bool) -> Result:
    """Percent of one core that idle consumers take, and the server takes more than it does without them.

    Without and with them in turn, several times: what a server does by itself now and then costs more than they do.
    """
    size = QUICK if quick else FULL
    load = Load(processes=size.idle_processes, seconds=size.idle_seconds)
    return summarize(
        IDLE_WITH_SERVER, UNIT, load, [idle_with_server(stage, usage, load) for _ in range(ROUNDS)]
    )


def idle_with_server(stage: Stage, usage: Usage, load: Load) -> Sample:
    """One sample of it; its figures are of the clients and of the server, with them and without."""
    with stage.queue(time_shards=QueueSettings().time_shards) as place:
        return beside_server([Job(idling, (place, load.seconds))] * load.processes, usage, load.seconds)


def beside_server(clients: Sequence[Job], usage: Usage, seconds: float) -> Sample:
    """The same of any clients, each of which returns the seconds of a core that it took."""
    alone = run_alone(_serving, usage, seconds)
    *used, serving = run_together([*clients, Job(_serving, (usage, seconds))])
    shares = {"clients": sum(used), "server": serving, "server without them": alone}
    figures = tuple(Figure(name, 100 * share / seconds) for name, share in shares.items())
    return Sample(100 * (sum(used) + max(0.0, serving - alone)) / seconds, figures)


def _serving(ready: Callable[[], float], usage: Usage, seconds: float) -> float:
    """Seconds of a core that the server takes in that time, once its clients have settled."""
    ready()
    time.sleep(SETTLING_SECONDS)
    before = usage.other_seconds()
    time.sleep(seconds)
    return usage.other_seconds() - before
