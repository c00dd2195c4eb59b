"""Metrics for Prometheus, and the health of workers."""

from __future__ import annotations

from shardq.metrics.measures import Measures
from shardq.metrics.queues import QueueMetrics
from shardq.metrics.recorder import Metrics

__all__ = ["Measures", "Metrics", "QueueMetrics"]
