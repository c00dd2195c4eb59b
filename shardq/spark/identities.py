"""Who rows are: a number for each row, the same in every attempt at a task, from its id or from its content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from shardq.errors import InvalidMessage

__all__ = ["hash_of", "mixed", "nulls", "numbers_of", "objects", "with_different_ids"]


def with_different_ids(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    """Pass batches on; raises InvalidMessage at the second row with the same value in the column of ids, if any.

    Two attempts that have such rows in different orders would look the same. Rows with null are left out: their
    content identifies them.
    """
    seen = np.empty(0, dtype=np.uint64)  # sorted
    for batch in batches:
        if name is not None:
            ids = batch.column(name).drop_null()
            numbers, first = np.unique(hash_of(ids), return_index=True)
            is_repeated = np.ones(len(ids), dtype=bool)
            is_repeated[first] = np.isin(numbers, seen, assume_unique=True)
            for place in np.flatnonzero(is_repeated)[:1].tolist():
                raise InvalidMessage(
                    f"column {name!r} is {ids[place].as_py()!r} in two rows of a task, which idColumn does not allow: "
                    "name a column without repeated values, or leave idColumn out, so that rows are identified by "
                    "their whole content"
                )
            seen = np.sort(np.concatenate([seen, numbers]), kind="stable")  # merges what is sorted already
        yield batch


def objects(column: pa.Array) -> Any:
    """The values of a column of strings or bytes, as bytes."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.to_numpy(zero_copy_only=False)


def hash_of(column: pa.Array) -> Any:
    """A number for each value, the same in every process; null counts as a value."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return numbers_of(objects(column))


def numbers_of(values: Any) -> Any:
    """A number for each value, the same in every process."""
    from pandas.util import hash_array  # noqa: PLC0415 - slow, and for tasks that send only

    return hash_array(values, categorize=False)


def nulls(column: pa.Array) -> Any:
    """True where a column is null."""
    return column.is_null().to_numpy(zero_copy_only=False)


def mixed(identities: Any, *columns: Any) -> Any:
    """Numbers that depend on those given and on the values of other columns, which may be None."""
    for column in columns:
        if column is not None:
            identities = identities * np.uint64(0x9E3779B97F4A7C15) ^ numbers_of(column)
    return identities
