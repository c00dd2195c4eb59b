"""Rows that are published to a topic: its log takes many of them in one message, an envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shardq.sending.run_parts import RunPart
from shardq.topics.envelopes import packed
from shardq.topics.filters import SUBJECT, check_subject

__all__ = ["in_envelopes", "with_subject"]


def with_subject(headers: Mapping[str, Any] | None, subject: str | None) -> dict[str, Any] | None:
    """Return the headers of a message with its subject among them; raises InvalidMessage for one that is none."""
    checked = check_subject(subject)
    return dict(headers or {}) if checked is None else {**(headers or {}), SUBJECT: checked}


def in_envelopes(part: RunPart) -> RunPart:
    """Return the part as messages of a topic's log, the same ones in every attempt; raises MessageTooLarge."""
    headers = part.headers or [None] * len(part.bodies)
    made = list(packed(zip(part.bodies, headers, strict=True)))
    return msgspec.structs.replace(
        part, bodies=[each.body for each in made], headers=[each.headers for each in made]
    )
