"""A task that returns a call or a workflow in place of a value: what that comes to is the result of the task.

The plan of what it returned is stored under the id of the task, as that of a bucket is. So a task that ends so ends
once, whoever dies: where a plan stands, its function is not run again. The plans of a large group are several: they are
stored as a whole first, and copied from there. The entry of the task is written by whoever ends the last step.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from shardq.base.receipt import MessageId
from shardq.errors import InvalidSetting
from shardq.tasks.buckets import Bucket, checked, read_plans, stream
from shardq.tasks.ids import in_run
from shardq.tasks.plans import write_plan
from shardq.tasks.workflow import KEEP_SECONDS, Workflow, placed, workflow_of

if TYPE_CHECKING:
    from shardq.tasks.binding import Binding
    from shardq.tasks.task import Signature

__all__ = ["enter_tail"]

DEEPEST = 30  # calls in place of calls: each makes the ids of steps longer, and costs a look when they run


def enter_tail(
    binding: Binding,
    task: str,
    name: str,
    given: Signature[object] | Workflow,
    keep: float,
    *,
    again: bool,
) -> None:
    """Store the plan of what a task returned, by which it begins as a bucket does. May be repeated.

    ``keep`` is for how many seconds the result of the task is kept. With ``again`` an earlier attempt may have stored
    some of what it returned, which need not be the same. Raises what :meth:`Workflow.send` raises, and InvalidSetting
    for one that is too deep; nothing is stored then.
    """
    if task.count("#") >= DEEPEST:
        raise InvalidSetting(
            f"task {name!r} returned a call, as {DEEPEST} before it did, each in place of the one before: return a "
            "value, or send the next call by itself"
        )
    first = in_run(task, 0)
    workflow = placed(workflow_of(given), None, MessageId.parse(first.partition("#")[0]).shard.queue)
    plan = workflow.plan(keep if "#" in task else max(keep, KEEP_SECONDS), name, tail=keep > 0)
    root = checked(write_plan(plan))
    if workflow.buckets or again:
        whole = binding.results.enter_whole(first, stream(Bucket(root, workflow.buckets)).read(), plan.keep)
        (_, plan), *inner = read_plans(io.BytesIO(whole))
        root = write_plan(plan)
        binding.results.enter_plans(((first + path, write_plan(each)) for path, each in inner), plan.keep)
    if "#" in task:
        binding.results.enter_plans([(first, root)], plan.keep)
    else:
        binding.results.enter_workflow(first, root, plan.keep)
