"""The hooks for Sentry and for logs that the page of traces shows do what it says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import shardq
from shardq.worker import Worker
from tests.docs.pages import DOCS, blocks_in


class Sent(Transport):
    """Keeps events in place of sending them."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(dict(event))


@pytest.fixture
def sentry() -> Iterator[Sent]:
    sent = Sent()
    sentry_sdk.init(
        dsn="https://key@localhost/1", transport=sent, default_integrations=False, shutdown_timeout=0
    )
    yield sent
    sentry_sdk.init(default_integrations=False)  # the default ones patch Starlette for all later tests


def recipe(*wanted: str) -> list[type[Any]]:
    """Classes that a block of the page defines."""
    names: dict[str, Any] = {"shardq": shardq, "contextmanager": contextmanager}
    (block,) = [text for text in blocks_in(DOCS / "tracing.md", "python") if f"class {wanted[0]}" in text]
    exec(compile(block, "tracing.md", "exec"), names)
    return [names[name] for name in wanted]


def test_sentry_gets_the_message_of_a_failed_handler_and_no_outcome(url: str, sentry: Sent) -> None:
    def handler(message: shardq.Message) -> None:
        if message.body == b"later":
            raise shardq.Snooze(60)
        raise ValueError("no tea")

    (hooks,) = recipe("SentryHooks")
    with shardq.connect(url, hooks=hooks()) as client:
        queue = client.create_queue("orders", retry_delay=60)
        queue.producer().send(b"later")
        sent = queue.producer().send(b"tea")
        Worker(queue, handler, idle_exit=0).run()
    (event,) = sentry.events
    assert event["exception"]["values"][0]["value"] == "no tea"
    assert event["tags"] == {"queue": "orders", "message": sent, "delivery": 1}
    assert event["transaction"] == "process orders"


def test_records_that_a_handler_writes_have_the_fields_of_its_message(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, fields = recipe("LogContext", "AddFields")
    added = fields()
    log = logging.getLogger("a library")
    with shardq.connect(url, hooks=hooks()) as client:
        queue = client.create_queue("orders")
        sent = queue.producer().send(b"tea")
        caplog.handler.addFilter(added)
        try:
            Worker(queue, lambda message: log.warning("at work"), idle_exit=0).run()
            log.warning("afterwards")
        finally:
            caplog.handler.removeFilter(added)
    within, after = (record for record in caplog.records if record.name == "a library")
    assert (vars(within)["queue"], vars(within)["id"]) == ("orders", sent)
    assert not hasattr(after, "queue")
