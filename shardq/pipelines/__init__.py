"""Pipelines: links from queue to queue, each with a function that returns the next message."""

from __future__ import annotations

from shardq.pipelines.drawing import QueueDepth, depths_of
from shardq.pipelines.pipeline import (
    DanglingEnd,
    DuplicateLink,
    Forward,
    InvalidPipeline,
    Link,
    LinkFunction,
    Pipeline,
    PipelineCycle,
    Split,
    UndeclaredTarget,
)
from shardq.pipelines.throughput import LinkRate, LinkReport, PipelineReport, rates_of
from shardq.pipelines.worker import PipelinePool, PipelineWorker

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
