"""All clients of a process can be traced at once, beside their own hooks, and without cost where they are not."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import shardq
import shardq.aio
from shardq import AllHooks
from shardq.otel import ShardqInstrumentor, instrument, uninstrument
from shardq.worker import ShellCommand, Worker
from tests.otel.traced import Traced


@pytest.fixture
def instrumented(traced: Traced) -> Iterator[Traced]:
    assert instrument(traced.hooks) is traced.hooks
    yield traced
    uninstrument()


class Sent(shardq.Hooks):
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.bodies: list[object] = []

    def after_send(self, queue, messages, ids) -> None:
        self.bodies += [message.body for message in messages]


def test_clients_that_are_opened_later_are_traced_until_that_ends(url: str, instrumented: Traced) -> None:
    assert instrument() is instrumented.hooks  # the first ones stay
    with shardq.connect(url) as client:
        client.create_queue("orders").producer().send(b"tea")
    assert instrumented.names == ["send orders"]
    uninstrument()
    with shardq.connect(url) as client:
        client.queue("orders").producer().send(b"tea")
    assert instrumented.names == ["send orders"]


def test_the_hooks_of_a_client_go_on_beside_those_that_trace_it(url: str, instrumented: Traced) -> None:
    own = Sent()
    with shardq.connect(url, hooks=own) as client:
        client.create_queue("orders").producer().send(b"tea")
    assert own.bodies == [b"tea"]
    assert instrumented.names == ["send orders"]


def test_a_client_that_is_traced_already_is_not_traced_twice(
    url: str, tmp_path: Path, instrumented: Traced
) -> None:
    with shardq.connect(url, hooks=AllHooks(Sent(), instrumented.hooks)) as client:
        client.create_queue("orders").producer().send(b"tea")
    assert instrumented.names == ["send orders"]
    db = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    with shardq.connect(url) as client, client.transaction(connection=db) as within:
        within.queue("orders").producer().send(b"tea")
    db.execute("COMMIT")
    db.close()
    assert instrumented.names == ["send orders"] * 2


def test_the_automatic_instrumentation_finds_shardq(url: str, traced: Traced) -> None:
    found = [each for each in entry_points(group="opentelemetry_instrumentor") if each.name == "shardq"]
    for each in found:  # none where shardq was installed before it had one
        assert each.load() is ShardqInstrumentor
    instrumentor = ShardqInstrumentor()
    instrumentor.instrument(tracer_provider=traced.tracers, meter_provider=traced.meters, skip_dep_check=True)
    try:
        with shardq.connect(url) as client:
            client.create_queue("orders").producer().send(b"tea")
    finally:
        instrumentor.uninstrument()
    assert traced.names == ["send orders"]


def test_hooks_are_asked_in_their_order_and_the_first_is_the_outermost(url: str) -> None:
    seen: list[str] = []

    class Named(shardq.Hooks):
        def __init__(self, name: str) -> None:
            self.name = name

        def before_send(self, queue, messages) -> None:
            seen.append(f"{self.name} before")

        def around(self, call):
            named = self.name

            class Around:
                def __enter__(self) -> None:
                    seen.append(f"{named} enters")

                def __exit__(self, *error: object) -> None:
                    seen.append(f"{named} leaves")

            return Around()

        def headers(self, queue, headers):
            return {**headers, self.name: queue}

    with shardq.connect(url, hooks=AllHooks(Named("a"), Named("b"))) as client:
        queue = client.create_queue("orders")
        sent = queue.producer().send(b"tea")
        assert list(queue.get(sent).headers) == ["a", "b"]
    assert seen == ["a enters", "b enters", "a before", "b before", "b leaves", "a leaves"]


def test_a_client_without_hooks_has_the_usual_producers_and_consumers(url: str) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("orders")
        with queue.consumer() as consumer:
            assert (type(queue.producer()), type(consumer)) == (shardq.Producer, shardq.Consumer)


HANDLERS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
import shardq.otel

provider = TracerProvider()
provider.add_span_processor(
    SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\\n"))
)
trace.set_tracer_provider(provider)
shardq.otel.instrument()

def handle(message):
    pass
"""


def test_a_module_with_handlers_traces_the_processes_of_the_work_command(
    url: str, tmp_path: Path, traced: Traced
) -> None:
    with shardq.connect(url, hooks=traced.hooks) as client:
        client.create_queue("orders").producer().send(b"tea")
    (tmp_path / "traced_handlers.py").write_text(HANDLERS)
    command = [sys.executable, "-m", "shardq", "--url", url, "work", "orders", "--idle-exit", "0"]
    ended = subprocess.run(
        [*command, "--handler", "traced_handlers:handle"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(shardq.__file__).parents[1])},
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    spans = [json.loads(line) for line in ended.stdout.splitlines()]
    processed = next(span for span in spans if span["name"] == "process orders")
    assert int(processed["context"]["trace_id"], 16) == traced.one("send orders").context.trace_id


def test_a_command_finds_the_context_of_its_message_in_the_environment(
    url: str, tmp_path: Path, traced: Traced
) -> None:
    with shardq.connect(url, hooks=traced.hooks) as client:
        queue = client.create_queue("orders")
        queue.producer().send(b"tea")
        out = tmp_path / "traceparent"
        Worker(queue, ShellCommand(f'echo "$TRACEPARENT" > {out}'), idle_exit=0).run()
    assert int(out.read_text().split("-")[2], 16) == traced.one("send orders").context.span_id
