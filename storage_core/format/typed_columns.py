"""Rows of typed topics made ready to be written: checked, timed and routed, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ..errors import InvalidRecordError, mismatches_of
from ..schema import keys
from ..schema.conform import conform
from ..schema.fields import SchemaVersion, dotted
from ..schema.rows import TypedRows
from ..types import TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED, Int64s
from .columns import Columns, check_times
from .numbers import numbers_of
from .partitioner import partition_for_keys
from .record_sizes import check_sizes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def make_typed_columns(
    batch: pa.RecordBatch,
    schema: SchemaVersion,
    *,
    topic: str,
    timestamp_column: str | None,
    now_us: int,
    max_record_bytes: int | None,
) -> Columns:
    """Check the rows of a batch and make them fit the schema.

    A row without a time in ``timestamp_column`` gets ``now_us``. Without such a column the log
    stamps the rows. Without ``max_record_bytes`` the caller checks sizes later.

    Raises:
        SchemaMismatchError: the rows do not fit the schema.
        InvalidRecordError: a time is outside the years 1 to 9999.
        RecordTooLargeError: a row is larger than ``max_record_bytes``.
    """
    with mismatches_of(topic):
        rows = conform(batch, schema)
    stamps = None if timestamp_column is None else _times(rows, timestamp_column, now_us)
    if max_record_bytes is not None:
        check_sizes(rows.bounds, max_record_bytes)
    return Columns(
        count=rows.count,
        timestamps=now_us if stamps is None else stamps,
        timestamp_type=TIMESTAMP_APPENDED if stamps is None else TIMESTAMP_SUPPLIED,
        key=None,
        value=None,
        headers=None,
        bounds=rows.bounds,
        rows=rows,
    )


def key_partitions(
    rows: TypedRows, key_columns: Sequence[str], partitions: int
) -> npt.NDArray[np.int32]:
    """The partition of each row, by its key columns."""
    return partition_for_keys(keys.key_bytes(rows, key_columns), partitions)


def route(
    columns: Columns, key_columns: Sequence[str], partitions: int, own: int
) -> Iterator[tuple[int, Columns]]:
    """The rows of each partition, by their key columns; without key columns all go to ``own``."""
    if not key_columns or partitions == 1:
        yield own, columns
        return
    assert columns.rows is not None
    yield from columns.by_partition(key_partitions(columns.rows, key_columns, partitions))


def _times(rows: TypedRows, name: str, now_us: int) -> Int64s | int | None:
    """Microseconds, one number if all are the same; None if all are null."""
    column = rows.arrays[rows.schema.positions[rows.schema.names[name].id]]
    if column is None or not rows.count:
        return None
    numbers = numbers_of(column, null=now_us)
    low, high = int(numbers.min()), int(numbers.max())
    try:
        check_times(low, high)
    except InvalidRecordError as error:
        raise InvalidRecordError(f"timestamp column {dotted((name,))}: {error}") from error
    return low if low == high else numbers
