"""Records as Arrow columns: what appends accept and what reads return.

Appends take Arrow arrays or plain Python sequences and turn them into ``Columns`` once; no later
step works on a single record.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from .. import arguments
from ..errors import InvalidRecordError
from ..lazy import LazyModule
from ..types import TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED, Int64s, Integers
from .numbers import joined_starts, number_column, numbers_of, starts_of
from .record_sizes import check_sizes, record_bounds

if TYPE_CHECKING:
    from ..schema import rows as typed_rows
    from ..schema.fields import SchemaVersion
    from ..schema.rows import TypedRows
else:
    typed_rows = LazyModule("storage_core.schema.rows")

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(HEADER)
READ_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
# Years 1 to 9999: what Spark, Python and ISO-8601 can all print.
MIN_TIMESTAMP, MAX_TIMESTAMP = -62_135_596_800_000_000, 253_402_300_799_999_999
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Values: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """Records ready to be encoded. A column without values is None; all have ``count`` rows.

    ``timestamps`` is one number when all records share it. ``bounds`` has one number more than
    ``count``: the step from one to the next is the size of a record's key, value and headers.
    ``offsets`` rise; they are given where records keep the offsets of another log, else the log
    numbers the records. A single offset without a record says where an empty log begins.
    ``rows`` are the columns of a typed topic; it has no key, value and headers.
    """

    count: int
    timestamps: Int64s | int
    timestamp_type: int
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None
    bounds: Integers
    offsets: Int64s | None = None
    rows: TypedRows | None = None

    @property
    def size(self) -> int:
        """Bytes of all keys, values and headers."""
        return int(self.bounds[-1]) - int(self.bounds[0])

    @property
    def schema(self) -> SchemaVersion | None:
        """The schema version of a typed topic; only records of one can be in a frame together."""
        return None if self.rows is None else self.rows.schema

    def slice(self, start: int, end: int) -> Columns:
        """Rows ``start`` to ``end``, without copying."""
        length = end - start
        if length == self.count:
            return self
        return Columns(
            count=length,
            timestamps=self.timestamps
            if isinstance(self.timestamps, int)
            else self.timestamps[start:end],
            timestamp_type=self.timestamp_type,
            key=None if self.key is None else self.key.slice(start, length),
            value=None if self.value is None else self.value.slice(start, length),
            headers=None if self.headers is None else self.headers.slice(start, length),
            bounds=self.bounds[start : end + 1],
            offsets=None if self.offsets is None else self.offsets[start:end],
            rows=None if self.rows is None else self.rows.slice(start, end),
        )

    def take(self, rows: Int64s) -> Columns:
        """The given rows, in the given order."""
        index = number_column(rows)
        key = None if self.key is None else self.key.take(index)
        value = None if self.value is None else self.value.take(index)
        headers = None if self.headers is None else self.headers.take(index)
        taken = None if self.rows is None else self.rows.take(rows)
        return Columns(
            count=len(rows),
            timestamps=self.timestamps
            if isinstance(self.timestamps, int)
            else self.timestamps[rows],
            timestamp_type=self.timestamp_type,
            key=key,
            value=value,
            headers=headers,
            bounds=record_bounds(key, value, headers, len(rows)) if taken is None else taken.bounds,
            rows=taken,
        )

    def by_partition(self, targets: Integers) -> Iterator[tuple[int, Columns]]:
        """The rows of each partition in their order; ``targets`` has the partition of each row."""
        if not self.count:
            return
        low, high = int(targets.min()), int(targets.max())
        if low == high:
            yield low, self
            return
        # Small integers sort several times faster, and stable keeps each partition's order.
        order = np.argsort(targets.astype(np.min_scalar_type(high)), kind="stable")
        rows, first = self.take(order), 0
        for partition, count in enumerate(np.bincount(targets).tolist()):
            if count:
                yield partition, rows.slice(first, first + count)
                first += count


class DecodedFrame(NamedTuple):
    """Records of one frame; ``columns`` leaves out those without values.

    ``offsets`` is None when the records are dense from ``first_offset``.
    """

    first_offset: int
    span: int
    rows: int
    timestamp_type: int
    constant_timestamp: int
    offsets: pa.Array | None
    columns: Mapping[str, pa.Array]


def concat_columns(parts: Sequence[Columns]) -> Columns:
    """All rows of ``parts`` in order. Stamped and supplied times together count as supplied.

    Those of a typed topic have one schema version.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    same_type = all(part.timestamp_type == first.timestamp_type for part in parts)
    same_time = all(
        isinstance(part.timestamps, int) and part.timestamps == first.timestamps for part in parts
    )
    offsets = [part.offsets for part in parts if part.offsets is not None]
    rows = [part.rows for part in parts if part.rows is not None]
    return Columns(
        count=sum(part.count for part in parts),
        timestamps=first.timestamps
        if same_time
        else np.concatenate(
            [np.broadcast_to(np.asarray(part.timestamps), part.count) for part in parts]
        ),
        timestamp_type=first.timestamp_type if same_type else TIMESTAMP_SUPPLIED,
        key=_concat([part.key for part in parts], parts, pa.binary()),
        value=_concat([part.value for part in parts], parts, pa.binary()),
        headers=_concat([part.headers for part in parts], parts, HEADERS),
        bounds=joined_starts([part.bounds for part in parts], np.int64),
        offsets=None if len(offsets) < len(parts) else np.concatenate(offsets),
        rows=None if not rows else typed_rows.concat(rows),
    )


def _concat(
    arrays: Sequence[pa.Array | None], parts: Sequence[Columns], kind: pa.DataType
) -> pa.Array | None:
    if all(array is None for array in arrays):
        return None
    return pa.concat_arrays(
        [
            pa.nulls(part.count, kind) if array is None else array
            for array, part in zip(arrays, parts, strict=True)
        ]
    )


def make_columns(
    values: Values,
    keys: Values | None,
    timestamps: Values | None,
    headers: Values | None,
    *,
    now_us: int,
    max_record_bytes: int | None,
) -> Columns:
    """Check and convert the arguments of an append.

    Without ``max_record_bytes`` the caller checks sizes later, when it knows the topic.

    Raises:
        InvalidRecordError: a column has the wrong type or length, or is not sound.
        RecordTooLargeError: a record is larger than ``max_record_bytes``.
    """
    arguments.integer("max_record_bytes", max_record_bytes, optional=True)
    value = _binary("values", values)
    count = len(value)
    key = None if keys is None else _binary("keys", keys, count)
    header = None if headers is None else _headers(headers, count)
    bounds = record_bounds(key, value, header, count)
    if max_record_bytes is not None:
        check_sizes(bounds, max_record_bytes)
    stamps = None if timestamps is None else _timestamps(timestamps, count, now_us)
    return Columns(
        count=count,
        timestamps=now_us if stamps is None else stamps,
        timestamp_type=TIMESTAMP_APPENDED if stamps is None else TIMESTAMP_SUPPLIED,
        key=_unless_all_null(key),
        value=_unless_all_null(value),
        headers=_unless_all_null(header),
        bounds=bounds,
    )


def _unless_all_null(column: pa.Array | None) -> pa.Array | None:
    return None if column is None or column.null_count == len(column) else column


def _one_array(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _as_array(name: str, column: Values, kind: pa.DataType) -> pa.Array:
    if isinstance(column, str | bytes | bytearray):
        raise InvalidRecordError(
            f"{name} must be an Arrow array or a sequence of records, got one "
            f"{type(column).__name__}. Put it in a list."
        )
    try:
        if isinstance(column, pa.Array | pa.ChunkedArray):
            # Arrow copies an array without checking its buffers: unsound ones may crash us.
            copied = column.type not in (kind, pa.string()) or getattr(column, "num_chunks", 1) > 1
            column.validate(full=copied)
            return _one_array(column.cast(kind) if column.type != kind else column)
        return _one_array(pa.array(column, type=kind))
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        found = getattr(column, "type", type(column).__name__)
        raise InvalidRecordError(
            f"{name} must be convertible to {kind}, got {found}: {error}"
        ) from error


def _require_sound(name: str, array: pa.Array) -> pa.Array:
    """Check the buffers of a caller's array: readers refuse unsound ones.

    Without the check its records would be acknowledged and lost.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(
            f"{name} cannot be stored: {error}. Use valid Arrow arrays, with text in UTF-8."
        ) from error
    return array


def _check_length(name: str, array: pa.Array, count: int | None) -> pa.Array:
    if count is not None and len(array) != count:
        raise InvalidRecordError(f"{name} has {len(array)} rows, but values has {count}.")
    return array


def _binary(name: str, column: Values, count: int | None = None) -> pa.Array:
    array = _require_sound(name, _as_array(name, column, pa.binary()))
    return _check_length(name, array, count)


def _headers(column: Values, count: int) -> pa.Array:
    if not isinstance(column, pa.Array | pa.ChunkedArray) and isinstance(column, Iterable):
        column = [list(row.items()) if isinstance(row, dict) else row for row in column]
    array = _check_length("headers", _as_array("headers", column, HEADERS), count)
    if not count:
        return pa.nulls(0, HEADERS)  # an empty array may lack offsets
    _require_sound_entries(array)
    entries = array.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise InvalidRecordError(
            "headers contains an entry without a key. Every header needs a key."
        )
    return array


def _require_sound_entries(headers: pa.Array) -> None:
    """Check the entries of these rows only; Arrow would check the whole array they are a slice of.

    Entries under a null are written too, so they are checked.
    """
    starts = starts_of(headers)
    if (starts[1:] < starts[:-1]).any():
        raise InvalidRecordError(
            "headers cannot be stored: their offsets go backwards. Use valid Arrow arrays."
        )
    entries = headers.values.slice(int(starts[0]), int(starts[-1] - starts[0]))
    _require_sound("a header name", entries.field("key"))
    _require_sound("a header value", entries.field("value"))


def _timestamps(column: Values, count: int, now_us: int) -> Int64s | int | None:
    """Microseconds, one number if all are the same; None if all are null."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        array = _require_sound("timestamps", _one_array(column))
        if not pa.types.is_timestamp(array.type) and not pa.types.is_integer(array.type):
            raise InvalidRecordError(
                f"timestamps must be timestamp or integer microseconds, got {array.type}."
            )
    elif isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise InvalidRecordError(
            f"timestamps must be an Arrow array or a sequence, got {type(column).__name__}."
        )
    else:
        array = _as_array("timestamps", [microseconds(item) for item in column], pa.int64())
    _check_length("timestamps", array, count)
    try:
        array = _in_microseconds(array)
    except pa.ArrowException as error:
        raise InvalidRecordError(f"timestamps do not fit in microseconds: {error}") from error
    if array.null_count == count:
        return None
    numbers = numbers_of(array, null=now_us)
    low, high = int(numbers.min()), int(numbers.max())
    check_times(low, high)
    return low if low == high else numbers


def check_times(low: int, high: int) -> None:
    """Refuse times that not everyone can print, given the first and the last.

    Raises:
        InvalidRecordError: one is outside the years 1 to 9999.
    """
    if low < MIN_TIMESTAMP or high > MAX_TIMESTAMP:
        found = f"timestamp {low}" if low == high else f"timestamps from {low} to {high}"
        raise InvalidRecordError(
            f"{found}: outside the years 1 to 9999, in microseconds since 1970. Use microseconds."
        )


def _in_microseconds(array: pa.Array) -> pa.Array:
    if array.type == pa.int64() or (pa.types.is_timestamp(array.type) and array.type.unit == "us"):
        return array
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    import pyarrow.compute as pc  # Spark's times are microseconds, so its tasks do without

    options = pc.CastOptions(pa.timestamp("us", array.type.tz), allow_time_truncate=True)
    return array.cast(options=options)


def microseconds(item: object) -> int | None:
    """A datetime (without zone: UTC) or integer as microseconds since 1970; None stays None."""
    if item is None or (isinstance(item, int) and not isinstance(item, bool)):
        return item
    if isinstance(item, datetime.datetime):
        aware = item if item.tzinfo else item.replace(tzinfo=datetime.UTC)
        return (aware - _EPOCH) // datetime.timedelta(microseconds=1)
    raise InvalidRecordError(
        f"timestamps must be datetimes or integer microseconds, got {type(item).__name__}."
    )
