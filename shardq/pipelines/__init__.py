"""Pipelines: links from queue to queue, each with a function that says what goes on."""

from __future__ import annotations

from shardq.pipelines.depths import QueueDepth, depths_of
from shardq.pipelines.errors import (
    DanglingEnd,
    DuplicateLink,
    InvalidPipeline,
    PipelineCycle,
    UndeclaredTarget,
)
from shardq.pipelines.link import Link, LinkFunction
from shardq.pipelines.pipeline import Pipeline
from shardq.pipelines.pool import PipelinePool
from shardq.pipelines.report import LinkReport, PipelineReport
from shardq.pipelines.returned import Forward, Split
from shardq.pipelines.throughput import LinkRate, rates_of
from shardq.pipelines.worker import PipelineWorker

__all__ = [
    "DanglingEnd",
    "DuplicateLink",
    "Forward",
    "InvalidPipeline",
    "Link",
    "LinkFunction",
    "LinkRate",
    "LinkReport",
    "Pipeline",
    "PipelineCycle",
    "PipelinePool",
    "PipelineReport",
    "PipelineWorker",
    "QueueDepth",
    "Split",
    "UndeclaredTarget",
    "depths_of",
    "rates_of",
]
