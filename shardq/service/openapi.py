"""The description of the JSON API: OpenAPI 3.1, made from the table of endpoints and the types of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import msgspec

from shardq.base.shard import NAME
from shardq.service.endpoints import ENDPOINTS, Endpoint
from shardq.service.problems import Problem

__all__ = ["description"]

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
    "503": "The store is unreachable.",
}


def description(server: str) -> dict[str, Any]:
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
        "security": [{"key": []}, {}],
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
    given = components[endpoint.given.__name__]
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
            schema = (
                {"type": "string", "pattern": f"^{NAME}$"}
                if name == "queue"
                else {"type": "string", "minLength": 1}
            )
            operation["parameters"].append({"name": name, "in": "path", "required": True, "schema": schema})
    if endpoint.in_query:
        required = given.get("required", ())
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in given.get("properties", {}).items()
        ]
    else:
        content = {"application/json": {"schema": by_type[str(endpoint.given)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _refusal(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}
