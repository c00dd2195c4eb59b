"""The HTTP service: a JSON API and a dashboard on one store, as an ASGI application or by ``shardq serve``."""

from __future__ import annotations

from shardq.service.application import Service, ServiceOptions
from shardq.service.keys import ROLES, Grant, KeyFile
from shardq.service.serving import ServePlan, serve

__all__ = ["ROLES", "Grant", "KeyFile", "ServePlan", "Service", "ServiceOptions", "serve"]
