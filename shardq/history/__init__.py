"""The history of queues: samples of depth, rates and durations, kept in the store for 24 hours."""

from __future__ import annotations

from shardq.history.reading import History, Percentiles, Point, read_histories, read_history
from shardq.history.sampler import Sampler

__all__ = ["History", "Percentiles", "Point", "Sampler", "read_histories", "read_history"]
