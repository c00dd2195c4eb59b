"""Traces and metrics by OpenTelemetry, as its conventions for messaging say."""

from __future__ import annotations

from shardq.otel.instrumentor import ShardqInstrumentor, instrument, uninstrument
from shardq.otel.tracing import Tracing

__all__ = ["ShardqInstrumentor", "Tracing", "instrument", "uninstrument"]
