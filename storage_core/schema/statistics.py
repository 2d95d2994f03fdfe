"""Statistics of the columns of a frame: smallest and largest value, nulls, NaN. Hints, never facts.

A reader skips a frame when its statistics show that no row can match. Missing or damaged statistics
mean that the frame is read. The values are plain Python values that compare as Spark compares the
column: ``int`` (also days of a date, and a time or duration in the unit of its column), ``float``,
``Decimal``, ``str``, ``bytes`` or ``bool``.

As JSON: an object of field id to ``[kind, nulls, NaN, smallest, largest]``. The kind is ``i``,
``f``, ``d``, ``s``, ``x`` (bytes in hexadecimal) or ``b``, or ``n`` for a column without a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ..format.numbers import raw_values
from ..lazy import LazyModule

if TYPE_CHECKING:
    from pyarrow import compute as pc

    from .rows import TypedRows
else:
    pc = LazyModule("pyarrow.compute")

MAX_BYTES = 64
"""Longer texts and bytes are cut to at most this size."""

_MAX_ID = 0xFFFFFFFF
_DECIMAL = re.compile(r"-?[0-9]{1,38}(\.[0-9]{1,38})?")
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class ColumnStatistics(NamedTuple):
    """What is known of the values of one column in a number of rows.

    ``minimum`` is at most every value, ``maximum`` at least every value; NaN is not counted to
    them. Both are None without such a value. Only ``maximum`` is None if the largest text or bytes
    cannot be cut to a larger one: there is no upper bound then.
    """

    minimum: Any
    maximum: Any
    nulls: int
    has_nan: bool = False


def column_statistics(array: pa.Array) -> ColumnStatistics | None:
    """The statistics of a column, or None if values of its type have no order that is kept."""
    found = _exact(array)
    if found is None or found.minimum is None:
        return found
    least, most = found.minimum, found.maximum
    if isinstance(least, bytes):
        least, most = least[:MAX_BYTES], _bytes_above(most)
    elif isinstance(least, str):
        least, most = _cut(least, MAX_BYTES), _text_above(most)
    return found._replace(minimum=least, maximum=most)


def are_true(known: ColumnStatistics, array: pa.Array) -> bool:
    """Whether statistics hold for all values of a column: no reader may miss one by them."""
    found = _exact(array)
    if found is None or known.nulls != found.nulls or (found.has_nan and not known.has_nan):
        return False
    if found.minimum is None:
        return True
    if type(known.minimum) is not type(found.minimum) or known.minimum > found.minimum:
        return False
    return known.maximum is None or bool(known.maximum >= found.maximum)


def _exact(array: pa.Array) -> ColumnStatistics | None:
    """The statistics of a column with the smallest and largest value as they are."""
    numbers = _comparable(array)
    if numbers is None:
        return None
    has_nan = False
    if pa.types.is_floating(numbers.type):
        if numbers.null_count == 0 and len(numbers):
            # Arrow's min_max of floats takes ten times as long as numpy's.
            stored = raw_values(numbers, "<f4" if pa.types.is_float32(numbers.type) else "<f8")
            least, most = float(stored.min()), float(stored.max())
            if least == least:  # numpy's smallest is NaN if there is one
                return ColumnStatistics(least, most, 0)
        is_number = pc.invert(pc.is_nan(numbers))
        has_nan = is_number.false_count > 0
        if has_nan:
            numbers = numbers.filter(is_number)
    if numbers.null_count == len(numbers):
        return ColumnStatistics(None, None, array.null_count, has_nan)
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    return ColumnStatistics(least, most, array.null_count, has_nan)


def of_rows(rows: TypedRows) -> bytes:
    """The statistics of all columns of a frame, as JSON."""
    found = {}
    for field, array in zip(rows.schema.fields, rows.arrays, strict=True):
        nothing = ColumnStatistics(None, None, rows.count)
        known = nothing if array is None else column_statistics(array)
        if known is not None:
            found[field.id] = known
    return to_json(found).encode()


def _comparable(array: pa.Array) -> pa.Array | None:
    """The column with dates, times and durations as the integers that they are stored as."""
    types, found = pa.types, array.type
    if types.is_date32(found):
        return array.view(pa.int32())
    if types.is_timestamp(found) or types.is_duration(found):
        return array.view(pa.int64())
    ordered = (
        types.is_boolean(found)
        or types.is_signed_integer(found)
        or types.is_float32(found)
        or types.is_float64(found)
        or types.is_decimal128(found)
        or types.is_string(found)
        or types.is_binary(found)
    )
    return array if ordered else None


def _cut(text: str, size: int) -> str:
    """The longest beginning of a text that has at most ``size`` bytes in UTF-8."""
    return text[:size].encode()[:size].decode(errors="ignore")


def _text_above(text: str) -> str | None:
    """The text itself if it is short, else a short one that is larger, or None."""
    short = _cut(text, MAX_BYTES)
    if short == text:
        return text
    while short:
        short, last = short[:-1], ord(short[-1]) + 1
        if last in _SURROGATES:
            last = _SURROGATES.stop
        if last <= _LAST_CHARACTER and len((short + chr(last)).encode()) <= MAX_BYTES:
            return short + chr(last)
    return None


def _bytes_above(value: bytes) -> bytes | None:
    if len(value) <= MAX_BYTES:
        return value
    short = value[:MAX_BYTES].rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None


def merge(left: ColumnStatistics | None, right: ColumnStatistics | None) -> ColumnStatistics | None:
    """The statistics of the rows of both, or None if those of one are unknown."""
    if left is None or right is None:
        return None
    nulls, has_nan = left.nulls + right.nulls, left.has_nan or right.has_nan
    if left.minimum is None or right.minimum is None:
        bounds = left if right.minimum is None else right
        return bounds._replace(nulls=nulls, has_nan=has_nan)
    if type(left.minimum) is not type(right.minimum):
        return None
    unbounded = left.maximum is None or right.maximum is None
    return ColumnStatistics(
        min(left.minimum, right.minimum),
        None if unbounded else max(left.maximum, right.maximum),
        nulls,
        has_nan,
    )


def to_json(statistics: Mapping[int, ColumnStatistics]) -> str:
    """The statistics of columns by field id, as one line of JSON."""
    return json.dumps(
        {str(number): _to_list(found) for number, found in statistics.items()},
        separators=(",", ":"),
    )


def from_json(text: str | bytes) -> dict[int, ColumnStatistics] | None:
    """What ``to_json`` wrote, or None if the text is anything else. Takes any text."""
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
        if not isinstance(found, dict):
            return None
        return {_to_id(number): _from_list(item) for number, item in found.items()}
    except (ValueError, RecursionError):  # of bad JSON, bad UTF-8, integers of 5,000 digits
        return None


def _to_list(found: ColumnStatistics) -> list[Any]:
    kind, nan = _KINDS[type(found.minimum)], int(found.has_nan)
    if found.minimum is None:
        return [kind, found.nulls, nan]
    write = _WRITERS.get(kind, _same)
    largest = None if found.maximum is None else write(found.maximum)
    return [kind, found.nulls, nan, write(found.minimum), largest]


def _from_list(item: object) -> ColumnStatistics:
    if not isinstance(item, list) or len(item) not in (3, 5):
        raise ValueError("not the statistics of a column")
    kind, nulls, nan, *bounds = item
    if type(nulls) is not int or nulls < 0 or type(nan) is not int or nan not in (0, 1):
        raise ValueError("bad counts")
    if nan and kind not in ("f", "n"):
        raise ValueError("only floats have NaN")
    if kind == "n" and not bounds:
        return ColumnStatistics(None, None, nulls, bool(nan))
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None or not bounds:
        raise ValueError("bad kind")
    least, most = read(bounds[0]), None if bounds[1] is None else read(bounds[1])
    if (most is None and kind not in ("s", "x")) or (most is not None and least > most):
        raise ValueError("bad bounds")
    return ColumnStatistics(least, most, nulls, bool(nan))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _to_id(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    if not 0 <= number <= _MAX_ID or str(number) != text:
        raise ValueError("not a field id")
    return number


def _same(value: Any) -> Any:
    return value


def _read_int(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError("not an integer of 64 bits")
    return value


def _read_bool(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("not a boolean")
    return value


def _read_float(value: object) -> float:
    number = float(value) if isinstance(value, str) else float("nan")
    if number != number or repr(number) != value:
        raise ValueError("not a number")
    return number


def _read_decimal(value: object) -> Decimal:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ValueError("not a decimal")
    return Decimal(value)


def _read_text(value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > MAX_BYTES:
        raise ValueError("not a short text")
    return value


def _read_bytes(value: object) -> bytes:
    if not isinstance(value, str) or len(value) > 2 * MAX_BYTES:
        raise ValueError("not short bytes")
    found = bytes.fromhex(value)
    if found.hex() != value:
        raise ValueError("not hexadecimal digits")
    return found


def _write_decimal(value: Decimal) -> str:
    return f"{value:f}"


_KINDS = {type(None): "n", bool: "b", int: "i", float: "f", Decimal: "d", str: "s", bytes: "x"}
_WRITERS: Mapping[str, Callable[[Any], Any]] = {"f": repr, "d": _write_decimal, "x": bytes.hex}
_READERS: Mapping[str, Callable[[object], Any]] = {
    "b": _read_bool,
    "i": _read_int,
    "f": _read_float,
    "d": _read_decimal,
    "s": _read_text,
    "x": _read_bytes,
}
