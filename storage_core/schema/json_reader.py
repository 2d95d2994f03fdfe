"""Rows of a typed topic from JSON objects or dicts: every value is checked against its column.

Beside what JSON has, a column takes Python's own values of its type: float, Decimal, bytes, date,
datetime, timedelta.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, NamedTuple, NoReturn, Protocol

import pyarrow as pa

from ..errors import InvalidRecordError, SchemaMismatchError
from .fields import KEY, RESERVED_NAMES, VALUE, Field, Path, SchemaVersion, dotted, fold, sql_type
from .time_text import read_days, read_interval, read_micros

_Read = Callable[[Any, Path], Any]
_SHOWN = 40
_SPECIAL_FLOATS = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}
_EXACT = Context(prec=38, traps=[Inexact, InvalidOperation])
_LONGEST_NUMBER = 4_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class JsonRow(NamedTuple):
    """One row: the values of the columns in their order, and what it says of its place."""

    values: tuple[Any, ...]
    partition: int | None = None
    timestamp: int | None = None


class _Values(Protocol):
    @property
    def values(self) -> tuple[Any, ...]: ...


class JsonReader:
    """Reads lines that ``json_rows`` can have made, as rows of one schema version."""

    def __init__(self, schema: SchemaVersion) -> None:
        self.schema = schema
        self._columns = _Struct(schema.fields)

    def read(self, line: bytes | str) -> JsonRow:
        """The row of a line. ``_topic`` and ``_offset`` are ignored.

        Raises:
            InvalidRecordError: the line is not a JSON object.
            SchemaMismatchError: a value does not fit its column; names column, found and wanted.
        """
        try:
            found = json.loads(
                line, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant
            )
        except (ValueError, RecursionError) as error:
            text = " ".join(str(error).split())
            raise InvalidRecordError(f"the line is not JSON: {text}.") from error
        if not isinstance(found, dict):
            raise InvalidRecordError("the line is not a JSON object of the topic's columns.")
        place = {name: found.pop(name) for name in RESERVED_NAMES if name in found}
        values = self._columns.values(found, ())
        return JsonRow(tuple(values), _partition(place), _timestamp(place))

    def values(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of a row, in the order of the columns.

        Raises:
            SchemaMismatchError: as ``read``.
        """
        return tuple(self._columns.values(row, ()))

    def batch(self, rows: Sequence[_Values]) -> pa.RecordBatch:
        """The rows as a batch with the columns of the schema."""
        columns = zip(*(row.values for row in rows), strict=True) if rows else ()
        arrays = [
            pa.array(values, field.type)
            for field, values in zip(
                self.schema.fields, columns or [()] * len(self.schema.fields), strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)


class _Struct:
    """The fields of a row or of a struct by their names."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = [(field, _reader_of(field)) for field in fields]
        self._exact = {field.name: place for place, field in enumerate(fields)}
        self._folded = {fold(field.name): place for place, field in enumerate(fields)}

    def values(self, found: Mapping[str, Any], path: Path) -> list[Any]:
        values: list[Any] = [None] * len(self._fields)
        seen: dict[int, str] = {}
        for name, value in found.items():
            place = self._exact.get(name)
            if place is None and isinstance(name, str):
                place = self._folded.get(fold(name))
            if place is None:
                self._refuse_unknown((*path, str(name)))
            if place in seen:
                raise SchemaMismatchError(
                    f"column {dotted((*path, name))}: it is also there as {seen[place]!r}."
                )
            seen[place] = name
            field, read = self._fields[place]
            if value is not None:
                values[place] = read(value, (*path, field.name))
        for (field, _), value in zip(self._fields, values, strict=True):
            if value is None and not field.nullable:
                raise SchemaMismatchError(
                    f"column {dotted((*path, field.name))}: found null or nothing, wanted "
                    f"{sql_type(field.type)} NOT NULL."
                )
        return values

    def _refuse_unknown(self, path: Path) -> NoReturn:
        known = ", ".join(dotted((field.name,)) for field, _ in self._fields[:20])
        raise SchemaMismatchError(
            f"column {dotted(path)}: found no such column in the schema. Columns: {known}."
        )


def _reader_of(field: Field) -> _Read:
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        return _struct_reader(field)
    if types.is_list(kind):
        return _list_reader(field)
    if types.is_map(kind):
        return _map_reader(field)
    if types.is_integer(kind):
        return _integer_reader(field)
    if types.is_floating(kind):
        return _float_reader(field)
    if types.is_decimal(kind):
        return _decimal_reader(field)
    if types.is_timestamp(kind):
        return _timestamp_reader(field)
    for is_kind, read, wanted in _TEXTS:
        if is_kind(kind):
            return _text_reader(field, read, wanted)
    if types.is_boolean(kind):
        return lambda value, path: (
            value if isinstance(value, bool) else _refuse(value, field, path, "true or false")
        )
    return lambda value, path: _refuse(value, field, path, "null")


def _struct_reader(field: Field) -> _Read:
    inner = _Struct(field.children)
    names = [child.name for child in field.children]

    def read(value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            _refuse(value, field, path, "an object")
        return dict(zip(names, inner.values(value, path), strict=True))

    return read


def _list_reader(field: Field) -> _Read:
    element = field.children[0]
    read_element = _item_reader(element)

    def read(value: Any, path: Path) -> Any:
        if not isinstance(value, list | tuple):
            _refuse(value, field, path, "a list")
        inside = (*path, element.name)
        return [read_element(item, inside) for item in value]

    return read


def _map_reader(field: Field) -> _Read:
    key, value_field = field.children
    read_key, read_value = _item_reader(key), _item_reader(value_field)
    by_text = pa.types.is_string(key.type)
    wanted = f"a list of objects with {KEY} and {VALUE}"
    wanted = f"an object, or {wanted}" if by_text else wanted

    def read(value: Any, path: Path) -> Any:
        # The names in an object of JSON are texts.
        if isinstance(value, dict) and (by_text or not all(isinstance(k, str) for k in value)):
            pairs = list(value.items())
        elif isinstance(value, list) and all(_is_pair(item) for item in value):
            pairs = [(item[KEY], item.get(VALUE)) for item in value]
        else:
            _refuse(value, field, path, wanted)
        at_key, at_value = (*path, KEY), (*path, VALUE)
        return [(read_key(k, at_key), read_value(v, at_value)) for k, v in pairs]

    return read


def _is_pair(item: object) -> bool:
    return isinstance(item, dict) and KEY in item and item.keys() <= {KEY, VALUE}


def _item_reader(field: Field) -> _Read:
    """A reader of elements, keys or values, which may be null only if the field allows it."""
    read = _reader_of(field)

    def read_item(value: Any, path: Path) -> Any:
        if value is not None:
            return read(value, path)
        return None if field.nullable else _refuse(value, field, path, "NOT NULL")

    return read_item


def _integer_reader(field: Field) -> _Read:
    limit = 1 << (field.type.bit_width - 1)
    wanted = f"a whole number from {-limit} to {limit - 1}"

    def read(value: Any, path: Path) -> Any:
        if type(value) is int and -limit <= value < limit:
            return value
        return _refuse(value, field, path, wanted)

    return read


def _float_reader(field: Field) -> _Read:
    form = "<f" if field.type.bit_width == 32 else "<d"

    def read(value: Any, path: Path) -> Any:
        if isinstance(value, str) and value in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[value]
        if isinstance(value, float) and not math.isfinite(value):
            return float(value)
        if type(value) in (int, float, Decimal):
            try:
                number: float = struct.unpack(form, struct.pack(form, float(value)))[0]
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        return _refuse(value, field, path, 'a number in its range, "NaN" or "Infinity"')

    return read


def _decimal_reader(field: Field) -> _Read:
    digits, scale = field.type.precision, field.type.scale
    wanted = f"a number of at most {digits - scale} digits and {scale} decimals"
    unit, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (digits - scale)

    def read(value: Any, path: Path) -> Any:
        try:
            if type(value) in (int, Decimal, str) and len(str(value)) <= _LONGEST_NUMBER:
                number = Decimal(value.strip() if isinstance(value, str) else value)
                # Quantize raises if a digit would be lost; abs() would round to 28 of them.
                if number.is_finite() and number.copy_abs() < limit:
                    return number.quantize(unit, context=_EXACT)
        except (ArithmeticError, ValueError):
            pass  # said below
        return _refuse(value, field, path, wanted)

    return read


def _timestamp_reader(field: Field) -> _Read:
    zoned = bool(field.type.tz)
    wanted = "ISO 8601 text such as 2026-11-01T09:00:00" + ("Z" if zoned else ", without a zone")

    def read(value: Any, path: Path) -> Any:
        found = read_micros(value) if isinstance(value, str) else _micros(value)
        if found is None or (found[1] and not zoned) or not -(1 << 63) <= found[0] < 1 << 63:
            return _refuse(value, field, path, wanted)
        return found[0]

    return read


def _text_reader(field: Field, read_text: Callable[[str], Any], wanted: str) -> _Read:
    def read(value: Any, path: Path) -> Any:
        found = read_text(value) if isinstance(value, str) else _plain(value, field.type)
        return _refuse(value, field, path, wanted) if found is None else found

    return read


def _micros(value: object) -> tuple[int, bool] | None:
    """Microseconds since 1970 of a datetime, and whether it has a zone."""
    if not isinstance(value, datetime.datetime):
        return None
    zoned = value.tzinfo is not None
    found = _whole_micros(value - (_EPOCH if zoned else _EPOCH.replace(tzinfo=None)))
    return None if found is None else (found, zoned)


def _whole_micros(value: datetime.timedelta) -> int | None:
    """None where nanoseconds would be lost: those of pandas are datetimes and timedeltas too."""
    micros = value // _MICROSECOND
    # Of NaT it is not a number.
    return micros if micros == micros and micros * _MICROSECOND == value else None


def _plain(value: object, kind: pa.DataType) -> Any:
    """What Arrow stores of one of Python's values; None if it is of another type."""
    if pa.types.is_binary(kind) and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if pa.types.is_duration(kind) and isinstance(value, datetime.timedelta):
        return _whole_micros(value)
    if pa.types.is_date(kind) and type(value) is datetime.date:
        return value.toordinal() - _EPOCH.toordinal()
    return None


def _unicode(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _days(text: str) -> int | None:
    found = read_days(text)
    return found if found is not None and -(1 << 31) <= found < 1 << 31 else None


def _duration(text: str) -> int | None:
    found = read_interval(text)
    return found if found is not None and -(1 << 63) <= found < 1 << 63 else None


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any], str], ...] = (
    (pa.types.is_string, _unicode, "a text of valid Unicode"),
    (pa.types.is_binary, _base64, "base64 text"),
    (pa.types.is_date, _days, "a date such as 2026-11-01"),
    (pa.types.is_duration, _duration, "text such as INTERVAL '1 02:03:04.5' DAY TO SECOND"),
)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return found


def _number(text: str) -> Decimal:
    return Decimal(text)


def _constant(text: str) -> NoReturn:
    raise ValueError(f'{text} is no number of JSON; write "{text}" in quotes')


def _partition(place: Mapping[str, Any]) -> int | None:
    found = place.get("_partition")
    if found is not None and (type(found) is not int or found < 0):
        raise InvalidRecordError(f"_partition must be an integer of at least 0, got {found!r}.")
    return found


def _timestamp(place: Mapping[str, Any]) -> int | None:
    found = place.get("_timestamp")
    if found is None:
        return None
    micros = read_micros(found) if isinstance(found, str) else None
    if micros is None or not -(1 << 63) <= micros[0] < 1 << 63:
        raise InvalidRecordError(f"_timestamp must be ISO 8601 text, got {found!r}.")
    return micros[0]


def _refuse(value: Any, field: Field, path: Path, wanted: str) -> NoReturn:
    try:
        shown = json.dumps(value, default=str)
    except (TypeError, ValueError):  # of a dict that JSON cannot have
        shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    raise SchemaMismatchError(
        f"column {dotted(path)}: found {shown}, wanted {sql_type(field.type)}: {wanted}."
    )
