"""Templates of the pages, and how they write numbers, times and names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup

from shardq.base.texts import many, plural

__all__ = ["digests", "made_templates"]

MOST_VALUES = 1_000
"""Of a body that is shown as a tree. A larger one is text: a tree takes 50 bytes of the page for each value."""


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def made_templates() -> jinja2.Environment:
    """Return the templates. Values are escaped."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("shardq.service"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        number=number,
        many=many,
        plural=plural,
        ago=ago,
        span=span,
        size=size,
        in_path=in_path,
        as_id=as_id,
        pattern=as_pattern,
        pretty=pretty,
        compact=compact,
        as_fields=as_fields,
        with_fields=with_fields,
        in_files=in_files,
    )
    templates.tests["few"] = are_few
    for name in templates.list_templates():
        templates.get_template(name)  # compiled before the first request
    return templates


def number(value: int | None) -> str:
    """Return a number exactly, with separators; a dash for None."""
    return "-" if value is None else f"{value:,}"


def span(seconds: float | None) -> str:
    """Return a duration in its two largest units.

    >>> span(3_700), span(0.25), span(-90_000)
    ('1 h 1 min', '250 ms', '-1 d 1 h')
    """
    if seconds is None:
        return "-"
    if abs(seconds) < 1:
        return (
            f"{seconds * 1_000:.0f} ms" if abs(seconds) >= 0.001 else "0 s" if not seconds else "below 1 ms"
        )
    if abs(seconds) < 10:
        return f"{seconds:.2g} s"
    sign, left = ("-" if seconds < 0 else ""), int(abs(seconds))
    parts: list[str] = []
    for length, unit in _UNITS:
        if (count := left // length) and len(parts) < 2:
            parts.append(f"{count} {unit}")
            left -= count * length
        elif parts:
            break
    return sign + " ".join(parts)


def ago(moment: datetime | None) -> Markup:
    """Return a moment relative to now, with the absolute time on hover; a dash for None."""
    if moment is None:
        return Markup("-")
    seconds = (datetime.now(UTC) - moment).total_seconds()
    text = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    absolute = f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), absolute, text)


def size(count: int) -> Markup:
    """Return a number of bytes in a short form, with the exact number on hover."""
    short, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if short >= 1_024:
            short, unit = short / 1_024, larger
    text = f"{short:,.0f} {unit}" if unit == "B" else f"{short:,.1f} {unit}"
    return Markup('<span title="{:,} bytes">{}</span>').format(count, text)


def in_files(name: str) -> str:
    """Return the path of a file of the pages, with its digest, so that a browser need not ask for it again."""
    return f"/static/{name}?{digests()[name]}"


@cache
def digests() -> Mapping[str, str]:
    """Return a digest of each file of the pages, by its name."""
    folder = files("shardq.service") / "static"
    return {file.name: sha256(file.read_bytes()).hexdigest()[:16] for file in folder.iterdir()}


def in_path(name: str) -> str:
    """Return a name as one part of a path."""
    return quote(name, safe="@:")


def as_id(name: str) -> str:
    """Return a name as a part of an id. A script looks for ids by selectors, in which other characters mean something.

    >>> as_id("mail/eu.dead")
    'mail_2f_eu_2e_dead'
    """
    return re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", name)


def as_pattern(name: str) -> str:
    """Return an expression of scripts that only a name matches. There an escaped ``-`` is an error, which is ignored.

    >>> as_pattern("mail-eu")
    'mail-eu'
    """
    return re.escape(name).replace(r"\-", "-")


def pretty(value: Any) -> str:
    """Return a value as JSON, with line breaks."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def are_few(value: Any, most: int = MOST_VALUES) -> bool:
    """Return whether JSON has at most ``most`` values.

    >>> are_few({"a": [1, 2]}, 4), are_few({"a": [1, 2]}, 3)
    (True, False)
    """
    rest, left = [value], most
    while rest and left >= 0:
        left -= 1
        each = rest.pop()
        rest += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return left >= 0


def compact(value: Any) -> str:
    """Return a value as JSON in one line."""
    return msgspec.json.encode(value).decode()


def with_fields(fields: Mapping[str, Any], **changes: Any) -> str:
    """Return a query with some fields changed. Those that are empty are left out."""
    shown = as_fields({**fields, **changes})
    return f"?{urlencode(shown)}" if shown else "?"


def as_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters as fields of a form. Those that are empty are left out, and 0 is not."""
    return {
        name: "true" if value is True else value
        for name, value in values.items()
        if value is not False and value not in (None, "")
    }
