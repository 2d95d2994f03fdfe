"""How large records are: where each begins and ends when all are laid end to end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..errors import RecordTooLargeError
from ..types import Integers
from .numbers import bounds_of, lengths_of, starts_of


def record_bounds(
    key: pa.Array | None, value: pa.Array | None, headers: pa.Array | None, count: int
) -> Integers:
    """Where each of ``count`` records begins, and the end of the last one.

    Counts the bytes of key, value and headers. For one column Arrow has these numbers already.
    """
    found = [_bounds(column) for column in (key, value) if column is not None]
    if headers is not None:
        entries = headers.flatten()
        each = np.diff(_bounds(entries.field("key"))) + np.diff(_bounds(entries.field("value")))
        found.append(bounds_of(each)[bounds_of(lengths_of(headers))])
    if not found:
        return np.zeros(count + 1, dtype=np.int64)
    first, *others = found
    for other in others:
        first = np.add(first, other, dtype=np.int64)
    return first


def _bounds(column: pa.Array) -> Integers:
    """Where the entries of a binary or text column begin, and where the last one ends."""
    return bounds_of(lengths_of(column)) if column.null_count else starts_of(column)


def fitting_rows(bounds: Integers, rows: int, size: int) -> int:
    """How many records from the first on are at most ``rows`` and have at most ``size`` bytes."""
    bounds = bounds[: rows + 1]
    limit = int(bounds[0]) + size
    if int(bounds[-1]) <= limit:
        return len(bounds) - 1
    return int(np.searchsorted(bounds, limit, side="right")) - 1


def check_sizes(bounds: Integers, max_record_bytes: int) -> None:
    """Refuse records that are too large.

    Raises:
        RecordTooLargeError: a record is larger than ``max_record_bytes``.
    """
    if int(bounds[-1]) - int(bounds[0]) <= max_record_bytes:
        return
    sizes = np.diff(bounds)
    check_size(int(sizes.max()), max_record_bytes, f"record {int(sizes.argmax())} of the append")


def check_size(size: int, max_record_bytes: int, name: str = "the record") -> None:
    """Refuse a record that is too large; ``name`` is what the error calls it."""
    if size > max_record_bytes:
        raise RecordTooLargeError(
            f"{name} has {size} bytes, more than max_record_bytes={max_record_bytes}. Split it, or "
            "raise max_record_bytes."
        )
