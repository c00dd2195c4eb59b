"""The table of all endpoints: pages, the JSON API and its description (OpenAPI 3.1) are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Literal

import msgspec

from shardq import Event
from shardq.base.shard import NAME
from shardq.history import History
from shardq.service import dead_letters, features, histories, messages, queues
from shardq.service import parameters as given
from shardq.service import views as view
from shardq.service.keys import Role
from shardq.service.problems import Problem
from shardq.service.store_access import StoreAccess

__all__ = ["ACTIONS", "ENDPOINTS", "Endpoint", "description"]

Method = Literal["GET", "POST", "PATCH", "DELETE"]
Call = Callable[[StoreAccess, str, Any], Awaitable[Any]]


class Endpoint(msgspec.Struct, frozen=True):
    """One endpoint. ``{queue}`` or ``{id}`` is the last part of its path, and may contain slashes.

    ``given`` is read from the query of a GET or DELETE, else from a JSON body. Other methods than GET are
    actions: they are logged, and drop older reads.
    """

    method: Method
    path: str
    role: Role
    call: Call
    given: type[msgspec.Struct]
    answer: Any

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.call.__name__

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (self.call.__doc__ or "").strip().splitlines()[0]

    @property
    def is_action(self) -> bool:
        """True when it changes something."""
        return self.method != "GET"

    @property
    def in_query(self) -> bool:
        """True when it is given parameters of the URL, and no body."""
        return self.method in {"GET", "DELETE"}

    def queue_of(self, name: str) -> str | None:
        """Return the queue that a request is about; None when the call itself has to check that."""
        if "{queue}" in self.path:
            return name
        return name.partition(":")[0] if "{id}" in self.path else None


ENDPOINTS = (
    Endpoint("GET", "/overview", "read", queues.overview, given.Nothing, view.OverviewView),
    Endpoint("GET", "/queues", "read", queues.list_queues, given.ListQueues, view.QueuesView),
    Endpoint("POST", "/queues", "manage", queues.create_queue, given.CreateQueue, view.QueueDetail),
    Endpoint("GET", "/queues/{queue}", "read", queues.show_queue, given.Nothing, view.QueueDetail),
    Endpoint("PATCH", "/queues/{queue}", "manage", queues.alter_queue, given.Settings, view.QueueDetail),
    Endpoint("DELETE", "/queues/{queue}", "manage", queues.delete_queue, given.Confirmed, view.Changed),
    Endpoint("POST", "/purge/{queue}", "manage", queues.purge, given.Confirmed, view.Changed),
    Endpoint("POST", "/pause/{queue}", "manage", queues.pause, given.Pause, view.QueueDetail),
    Endpoint("POST", "/resume/{queue}", "manage", queues.resume, given.Nothing, view.QueueDetail),
    Endpoint("POST", "/sweep/{queue}", "manage", queues.sweep, given.Nothing, view.Changed),
    Endpoint("GET", "/shards/{queue}", "read", queues.show_shards, given.Shards, view.ShardsView),
    Endpoint("GET", "/history", "read", histories.show_total_history, histories.Range, History),
    Endpoint("GET", "/history/{queue}", "read", histories.show_history, histories.Range, History),
    Endpoint(
        "GET",
        "/histories",
        "read",
        histories.list_histories,
        histories.ListHistories,
        histories.HistoriesView,
    ),
    Endpoint(
        "GET", "/messages/{queue}", "read", messages.list_messages, given.ListMessages, view.MessagesView
    ),
    Endpoint("POST", "/messages/{queue}", "act", messages.send, given.Send, view.SentView),
    Endpoint("GET", "/message/{id}", "read", messages.show_message, given.OneMessage, view.MessageView),
    Endpoint("DELETE", "/message/{id}", "act", messages.remove_message, given.Nothing, view.Changed),
    Endpoint("GET", "/trace/{id}", "read", messages.trace_message, given.Nothing, list[Event]),
    Endpoint(
        "GET",
        "/dead-letters/{queue}",
        "read",
        dead_letters.list_dead_letters,
        given.ListDeadLetters,
        view.DeadLettersView,
    ),
    Endpoint("POST", "/redrive/{queue}", "act", dead_letters.redrive, given.Redrive, view.Changed),
    Endpoint(
        "POST", "/remove/{queue}", "act", dead_letters.remove_messages, given.RemoveMessages, view.Changed
    ),
    Endpoint(
        "POST", "/remove-matching/{queue}", "act", messages.remove_matching, given.ScanFilter, view.Changed
    ),
    Endpoint("GET", "/consumers", "read", queues.list_all_consumers, given.ListConsumers, view.ConsumersView),
    Endpoint("GET", "/consumers/{queue}", "read", queues.list_consumers, given.Nothing, view.ConsumersView),
    Endpoint("POST", "/evict/{queue}", "act", queues.evict, given.Evict, view.Changed),
    Endpoint("GET", "/tasks", "read", features.list_tasks, given.ListTasks, view.TasksView),
    Endpoint("GET", "/workflows", "read", features.list_workflows, given.ListWorkflows, view.WorkflowsView),
    Endpoint("GET", "/workflows/{id}", "read", features.show_workflow, given.Nothing, view.WorkflowDetail),
    Endpoint("GET", "/schedules", "read", features.list_schedules, given.Nothing, view.SchedulesView),
    Endpoint("POST", "/schedules/pause", "act", features.pause_schedule, given.ScheduleId, view.ScheduleView),
    Endpoint(
        "POST", "/schedules/resume", "act", features.resume_schedule, given.ScheduleId, view.ScheduleView
    ),
    Endpoint("POST", "/schedules/trigger", "act", features.trigger_schedule, given.ScheduleId, view.SentView),
    Endpoint("GET", "/topics", "read", features.list_topics, given.Nothing, view.TopicsView),
    Endpoint("GET", "/limits", "read", features.list_limits, given.Nothing, view.LimitsView),
    Endpoint("GET", "/checks", "read", features.run_checks, given.Nothing, view.ChecksView),
    Endpoint("GET", "/system", "read", features.show_system, given.Nothing, view.SystemView),
)
"""Every endpoint of the JSON API, below ``/api/v1``."""

ACTIONS = {endpoint.name: endpoint for endpoint in ENDPOINTS if endpoint.is_action}
"""The actions by name, as the forms of pages name them."""


_REFUSALS = {
    "400": "A parameter is wrong.",
    "401": "The key is missing or unknown.",
    "403": "The key does not allow it, or the request comes from another site.",
    "404": "There is no such thing, or the key does not see it.",
    "408": "The body was sent too slowly.",
    "409": "The state of the queue does not allow it.",
    "413": "The request or the message is too large.",
    "415": "The content type is not JSON.",
    "421": "The host is not one of those that are allowed.",
    "429": "The key sends too many requests. Repeat it after the seconds of the header Retry-After.",
    "500": "The stored settings of the queue cannot be read.",
    "503": "The store is unreachable, or the service ends.",
}


def description(server: str, *, has_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI document of the API, whose base is the URL or path ``server``."""
    types: list[Any] = [Problem]
    for endpoint in ENDPOINTS:
        types += [endpoint.answer, endpoint.given]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        operation = _operation(endpoint, by_type, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "shardq",
            "version": version("shardq"),
            "description": "Queues, shards, messages, dead letters, consumers, tasks, schedules and topics of a store.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server}],
        "security": [{"key": []}] if has_keys else [],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key of `shardq keys create`."}
            },
        },
    }


def _operation(
    endpoint: Endpoint, by_type: Mapping[str, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    accepted = components[endpoint.given.__name__]
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": f"Needs a key with the role {endpoint.role}.",
        "parameters": [],
        "responses": {
            "200": {
                "description": "Done." if endpoint.is_action else "What was found.",
                "content": {"application/json": {"schema": by_type[str(endpoint.answer)]}},
            }
        }
        | {status: _refusal(text) for status, text in _REFUSALS.items()},
    }
    for name in ("queue", "id"):
        if f"{{{name}}}" in endpoint.path:
            is_queue = name == "queue"
            schema = {"type": "string"} | ({"pattern": f"^{NAME}$"} if is_queue else {"minLength": 1})
            operation["parameters"].append({"name": name, "in": "path", "required": True, "schema": schema})
    if endpoint.in_query:
        required = accepted.get("required", ())
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in accepted.get("properties", {}).items()
        ]
    else:
        content = {"application/json": {"schema": by_type[str(endpoint.given)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _refusal(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}
