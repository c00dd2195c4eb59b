"""The tree of errors is one, drawn where it is defined, and programs can rely on it."""

from __future__ import annotations

import ast
import pickle
import re
from functools import cache
from pathlib import Path

import pytest

import shardq
from shardq import errors

pytestmark = pytest.mark.xdist_group("test_errors")  # each process would parse the whole source

PACKAGE = Path(shardq.__file__).parent
OWN_CODES_OF_STORES = {  # told to users as what it is a kind of
    "Disturbed",
    "Locked",
    "TombstonesRefused",
    "TransactionDisturbed",
    "TransactionEnded",
}

CODES = {
    "ArgumentsRejected": "arguments_rejected",
    "BodyNotFound": "body_not_found",
    "Closed": "closed",
    "CommandFailed": "command_failed",
    "ConsumerAlive": "consumer_alive",
    "ConsumerNotFound": "consumer_not_found",
    "DanglingEnd": "dangling_end",
    "DuplicateLink": "duplicate_link",
    "Forbidden": "forbidden",
    "HandlerExited": "handler_exited",
    "InvalidCursor": "invalid_cursor",
    "InvalidFilter": "invalid_filter",
    "InvalidMessage": "invalid_message",
    "InvalidName": "invalid_name",
    "InvalidPipeline": "invalid_pipeline",
    "InvalidReceipt": "invalid_receipt",
    "InvalidSetting": "invalid_setting",
    "JobFailed": "job_failed",
    "LeaseLost": "lease_lost",
    "MessageNotPending": "message_not_pending",
    "MessageTooLarge": "message_too_large",
    "NotFound": "not_found",
    "OutcomeUnknown": "outcome_unknown",
    "PartialSend": "partial_send",
    "PermitLost": "permit_lost",
    "PermitTimeout": "permit_timeout",
    "PipelineCycle": "pipeline_cycle",
    "ProcessFailed": "process_failed",
    "QueueExists": "queue_exists",
    "QueueFull": "queue_full",
    "QueueNotFound": "queue_not_found",
    "QueuePaused": "queue_paused",
    "RepeatTooLate": "repeat_too_late",
    "ReplayConflict": "replay_conflict",
    "ResultMissing": "result_missing",
    "ResultRejected": "result_rejected",
    "ResultTimeout": "result_timeout",
    "ScheduleExists": "schedule_exists",
    "ScheduleNotFound": "schedule_not_found",
    "SchemaMismatch": "schema_mismatch",
    "ShardqError": "error",
    "StoreUnavailable": "store_unavailable",
    "SubscriptionExists": "subscription_exists",
    "SubscriptionNotFound": "subscription_not_found",
    "TaskAbandoned": "task_abandoned",
    "TaskCancelled": "task_cancelled",
    "TaskFailed": "task_failed",
    "TaskTimeout": "task_timeout",
    "TopicExists": "topic_exists",
    "TopicNotFound": "topic_not_found",
    "UndeclaredTarget": "undeclared_target",
    "UniqueKeyTaken": "unique_key_taken",
    "UnknownTask": "unknown_task",
    "UnreadableSettings": "unreadable_settings",
    "UnsupportedByStore": "unsupported_by_store",
    "WaitRejected": "wait_rejected",
    "WorkersFailing": "workers_failing",
}


@cache
def defined() -> dict[str, tuple[str, str]]:
    """Every class of the package that is an error of shardq: what it is a kind of, and its module."""
    classes = [
        (node, path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", "."))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    found = {"ShardqError": ("", "shardq.errors")}
    while more := [
        each
        for each in classes
        if each[0].name[0] != "_" and each[0].name not in found and _parent(each[0]) in found
    ]:
        found |= {node.name: (_parent(node), module) for node, module in more}
    return found


def _parent(node: ast.ClassDef) -> str:
    return ast.unparse(node.bases[0]).rpartition(".")[2] if node.bases else ""


def code_of(name: str) -> str:
    module = pytest.importorskip(defined()[name][1], exc_type=ImportError)
    return str(getattr(module, name).code)


def drawn() -> dict[str, str]:
    """Every error in the picture of the tree, and the one that it stands below."""
    found = {"ShardqError": ""}
    above = ["ShardqError"]
    for branch, name in re.findall(r"^    ([│ ]*[├└]── )(\w+)  ", errors.__doc__ or "", re.MULTILINE):
        above = above[: len(branch) // len("├── ")]
        found[name] = above[-1]
        above.append(name)
    return found


def test_the_picture_of_the_tree_shows_every_error_where_it_belongs() -> None:
    assert drawn() == {name: parent for name, (parent, _) in defined().items()}


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_the_code_of_an_error_never_changes(name: str, code: str) -> None:
    assert code_of(name) == code


def test_every_error_has_a_code_of_its_own_but_those_that_are_told_as_what_they_are_a_kind_of() -> None:
    assert defined().keys() == CODES.keys() | OWN_CODES_OF_STORES
    assert len(set(CODES.values())) == len(CODES)
    assert {code_of(name) for name in OWN_CODES_OF_STORES} == {"store_unavailable"}


def test_every_error_of_the_core_is_exported() -> None:
    assert {name for name in shardq.__all__ if name in CODES} == set(errors.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_tells_the_same_in_another_process(name: str) -> None:
    error = getattr(errors, name)("what happened")
    error.retryable = True
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), "what happened", vars(error))
