"""Tasks: functions that are sent to workers, tried again when they fail, and whose results can be waited for."""

from __future__ import annotations

from shardq.tasks.app import InlineTasks, SentTask, TaskPool, Tasks
from shardq.tasks.calling import CurrentTask, Middleware, current_task
from shardq.tasks.errors import (
    ArgumentsRejected,
    Failure,
    ResultMissing,
    ResultRejected,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
    TaskTimeout,
    UnknownTask,
    WaitRejected,
)
from shardq.tasks.options import RetryPolicy, TaskOptions
from shardq.tasks.result import Result
from shardq.tasks.signature import Signature
from shardq.tasks.steps import Collected
from shardq.tasks.task import Task
from shardq.tasks.views import TaskView, WorkflowView
from shardq.tasks.worker import TaskWorker
from shardq.tasks.workflow import Workflow, chain, chord, group
from shardq.tasks.workflow_result import WorkflowResult

__all__ = [
    "ArgumentsRejected",
    "Collected",
    "CurrentTask",
    "Failure",
    "InlineTasks",
    "Middleware",
    "Result",
    "ResultMissing",
    "ResultRejected",
    "ResultTimeout",
    "RetryPolicy",
    "SentTask",
    "Signature",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskOptions",
    "TaskPool",
    "TaskTimeout",
    "TaskView",
    "TaskWorker",
    "Tasks",
    "UnknownTask",
    "WaitRejected",
    "Workflow",
    "WorkflowResult",
    "WorkflowView",
    "chain",
    "chord",
    "current_task",
    "group",
]
