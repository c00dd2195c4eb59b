"""What was traced and measured, as the SDK of OpenTelemetry collects it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, Tracer

from shardq.otel import Tracing


class Traced:
    """Hooks that trace into memory, and what they have traced."""

    def __init__(self, **options: Any) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.hooks = Tracing(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def tracer(self) -> Tracer:
        return self.tracers.get_tracer("the application")

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that have ended, in that order."""
        return list(self._exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    def points(self, metric: str) -> list[Any]:
        """The points of a metric that have been measured."""
        return [point for each in self._metrics() if each.name == metric for point in each.data.data_points]

    def _metrics(self) -> Iterator[Any]:
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                yield from scope.metrics


def trace_of(span: ReadableSpan) -> int:
    return span.context.trace_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def facts(described: ReadableSpan | Link) -> dict[str, Any]:
    """The attributes of a span or a link."""
    return dict(described.attributes or {})
