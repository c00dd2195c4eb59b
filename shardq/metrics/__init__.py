"""Metrics for Prometheus, and the health of workers."""

from __future__ import annotations

from shardq.metrics.queues import QueueMetrics
from shardq.metrics.recorder import Measures, Metrics

__all__ = ["Measures", "Metrics", "QueueMetrics"]
