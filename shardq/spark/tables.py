"""Queues as tables of a catalog.

Spark hands the options of a table over when it is made, and never again. So the schema keeps them, as metadata of its
first column. Spark gives that metadata to the rows that are inserted, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

__all__ = ["of_the_user", "remember", "remembered"]

_KEPT = "shardq"
_OF_CATALOGS = frozenset({"provider", "owner", "location", "external", "comment", "collation", "table_type"})
_COPIES = "option."  # a catalog gives each option a second time


def of_the_user(given: Mapping[str, str]) -> dict[str, str]:
    """The options without what a catalog adds when a table is made."""
    if "provider" not in given:
        return dict(given)
    return {
        name: value
        for name, value in given.items()
        if name.lower() not in _OF_CATALOGS and not name.lower().startswith(_COPIES)
    }


def remember(columns: StructType, options: Mapping[str, str]) -> StructType:
    """The columns, with the options for later."""
    first, *rest = columns.fields
    kept = StructField(first.name, first.dataType, first.nullable, {_KEPT: dict(options)})
    return StructType([kept, *rest])


def remembered(schema: StructType) -> dict[str, str]:
    """The options with which the table of these columns was made; none: it is no table."""
    return {name: value for field in schema.fields for name, value in field.metadata.get(_KEPT, {}).items()}
