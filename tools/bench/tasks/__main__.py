"""Compares tasks: how many are sent in a second, and how many one worker process with 8 threads runs.

    make bench-tasks ARGS="--tasks 5000 --chord 10000"

It starts a Redis and a MongoDB for that, which are empty; `python -m tools.bench.tasks --help` takes others.

Empty tasks are sent, in bundles where a system has them, and one by one, each when the one before is stored. Then a
worker is started: the time is that from the first task that runs to the last. Redis keeps nothing on the disk; SQLite
syncs each commit, and MongoDB answers when its journal is written.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

PATIENCE_SECONDS = 300.0
CHORDS = ("shardq", "celery")


def measure(system: str, count: int, *, single: bool = False) -> dict[str, float]:
    """Send tasks, start a worker, and wait until it has run them. Runs in a process of its own."""
    app = importlib.import_module(f"tools.bench.tasks.{system}_app")
    send = app.send_each if single else app.send
    send(1)  # the store is open, and the queue is there
    began = time.perf_counter()
    send(count - 1)
    sent = time.perf_counter() - began
    done = Path(os.environ["TASKS_DONE"])
    with worker(app.WORKER):
        until = time.monotonic() + PATIENCE_SECONDS
        while not (done.exists() and done.read_text()):
            if time.monotonic() > until:
                raise SystemExit(f"{system} has not run {count} tasks in {PATIENCE_SECONDS:g} seconds")
            time.sleep(0.02)
    seconds, processor = map(float, done.read_text().split())
    return {"sent": (count - 1) / sent, "run": count / seconds, "processor": processor / count * 1e6}


def measure_chord(system: str, count: int) -> dict[str, float]:
    """Wait for the result of a chord, while a worker runs."""
    app = importlib.import_module(f"tools.bench.tasks.{system}_app")
    with worker(app.WORKER):
        app.run_chord(2)  # the worker is there
        began = time.perf_counter()
        assert app.run_chord(count) == sum(range(count))
        return {"chord": time.perf_counter() - began}


@contextlib.contextmanager
def worker(command: list[str]) -> Iterator[None]:
    """A worker in a process, which ends with the block."""
    process = subprocess.Popen(command, stdout=sys.stderr, start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


MEASURES: dict[str, Callable[[str, int], dict[str, float]]] = {
    "tasks": measure,
    "singles": partial(measure, single=True),
    "chord": measure_chord,
}


def in_own_process(what: str, system: str, url: str, count: int, *, keeps: bool) -> dict[str, float]:
    """Measure with a fresh interpreter, and with what its worker is told in its environment."""
    with tempfile.TemporaryDirectory(prefix="shardq-bench-tasks-") as folder:
        told = {"TASKS_URL": url, "TASKS_COUNT": str(count), "TASKS_KEEP": str(int(keeps))}
        command = [sys.executable, "-m", "tools.bench.tasks", "--one", what, system, "--tasks", str(count)]
        done = subprocess.run(
            command,
            env={**os.environ, **told, "TASKS_DONE": str(Path(folder, "done"))},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout)
    print(what, system, found, file=sys.stderr, flush=True)  # a run that is ended has told what it knew
    return found


def stores(options: argparse.Namespace, folder: str) -> Iterator[tuple[str, str, str]]:
    """What each is called, its app, and a store that has nothing in it."""
    yield "shardq, SQLite", "shardq", f"sqlite:///{folder}/{time.monotonic_ns()}.db"
    if options.mongodb:
        yield "shardq, MongoDB", "shardq", options.mongodb
    for system in ("celery", "dramatiq", "huey") if options.redis else ():
        yield f"{system}, Redis", system, options.redis


def compare(options: argparse.Namespace) -> None:
    """Measure everything, in turns, and print the medians."""
    print(
        f"{options.tasks:,} tasks, a chord of {options.chord:,}, {options.rounds} rounds; load {os.getloadavg()}"
    )
    with tempfile.TemporaryDirectory(prefix="shardq-bench-tasks-") as folder:
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for keeps in (False, True):
                for name, system, url in stores(options, folder):
                    told = in_own_process("tasks", system, url, options.tasks, keeps=keeps)
                    kind = "with results" if keeps else "without results"
                    found.setdefault((name, f"sent/s {kind}"), []).append(told["sent"])
                    found.setdefault((name, f"run/s {kind}"), []).append(told["run"])
                    found.setdefault((name, f"µs of cpu {kind}"), []).append(told["processor"])
            for name, system, url in stores(options, folder):
                told = in_own_process("singles", system, url, options.singles, keeps=False)
                found.setdefault((name, "sent/s one by one"), []).append(told["sent"])
            for name, system, url in stores(options, folder):
                if system in CHORDS and options.chord:
                    told = in_own_process("chord", system, url, options.chord, keeps=True)
                    found.setdefault((name, "chord, s"), []).append(told["chord"])
    for (name, what), values in sorted(found.items(), key=lambda each: (each[0][1], each[0][0])):
        median = sorted(values)[len(values) // 2]
        shown = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        print(f"{what:26} {name:18} {shown:>10}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis", metavar="URL", help="an empty Redis: without it only shardq is measured")
    parser.add_argument("--mongodb", metavar="URL", help="an empty MongoDB for shardq, beside SQLite")
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--singles", type=int, default=2_000, help="how many are sent one by one")
    parser.add_argument("--chord", type=int, default=10_000, help="how many tasks it has; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "SYSTEM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, system = options.one
        print(json.dumps(MEASURES[what](system, options.tasks)))
    else:
        compare(options)


if __name__ == "__main__":
    main()
