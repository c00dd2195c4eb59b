"""Reading the parameters of requests, and the stream of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response, StreamingResponse

from shardq.service.problems import Refused
from shardq.service.sharing import Ticks

__all__ = ["event_stream", "fields_of", "read_fields"]

_MOST_FIELDS = 2_000


def fields_of(encoded: bytes) -> list[tuple[str, str]]:
    """Return the fields of a query or a form. Raises Refused."""
    try:
        return parse_qsl(
            encoded.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MOST_FIELDS,
            errors="strict",
        )
    except ValueError as error:
        raise Refused(400, "invalid_parameters", f"the parameters cannot be read: {error}") from error


def read_fields(kind: type, fields: Sequence[tuple[str, str]]) -> Any:
    """Return a struct of fields that are text. Raises Refused for one that is repeated, unknown or wrong."""
    if len(given := dict(fields)) < len(fields):
        raise Refused(400, "invalid_parameters", "a parameter is repeated: give each once")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, "invalid_parameters", str(error)) from error


def event_stream(ticks: Ticks) -> Response:
    """Return the stream of ticks. Raises Refused when too many listen."""
    if ticks.full:
        raise Refused(
            429, "too_many_listeners", "too many pages are open: close some, or pause their updates"
        )
    return StreamingResponse(ticks.events(), media_type="text/event-stream")
