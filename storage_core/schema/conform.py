"""Rows of other schemas made to fit one: rows to be written, and rows of older frames.

``conform`` is the check before anything is staged: it takes arrays that anyone may have made, finds
columns by name and refuses what does not fit. ``read_up`` is for readers: it finds fields by id in
arrays that are sound already. Both change values only in ways that lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from ..errors import SchemaMismatchError, mismatches_of
from ..format.numbers import is_present
from .evolution import evolve
from .fields import Field, Path, SchemaVersion, dotted, fold, from_arrow, is_nested, sql_type
from .nesting import as_list, children_of, entries_of, entry_rows, rebuild
from .rows import TypedRows
from .soundness import validate

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask: TypeAlias = npt.NDArray[np.bool_]
    # Which rows exist, so that a null among them counts. Asked only if there is a null.
    Present: TypeAlias = Callable[[], Mask]


def conform(batch: pa.RecordBatch, schema: SchemaVersion) -> TypedRows:
    """The rows of a batch as rows of the schema; columns are matched by name.

    A column that the batch lacks is null. Values are widened where the column is wider.

    Raises:
        SchemaMismatchError: a column is unknown, has a type that does not fit, or a null where
            there must be none; or a NOT NULL column is missing.
        UnsupportedTypeError: a column has a type that cannot be stored.
        InvalidSchemaError: a column has a name that is not allowed, or is there twice.
    """
    places = _places(batch.schema, schema)
    arrays = []
    for field, place in zip(schema.fields, places, strict=True):
        array = None if place is None else _admit(batch.column(place), field)
        all_null = array is None or array.null_count == len(array)
        arrays.append(None if all_null else array)
    return TypedRows(schema, arrays, batch.num_rows)


def check_fits(found: pa.Schema, schema: SchemaVersion, *, topic: str) -> None:
    """Refuse columns that ``conform`` would refuse whatever the rows are.

    Raises:
        SchemaMismatchError, UnsupportedTypeError, InvalidSchemaError: as ``conform``.
    """
    with mismatches_of(topic):
        _places(found, schema)


@lru_cache(maxsize=64)
def _places(found: pa.Schema, schema: SchemaVersion) -> tuple[int | None, ...]:
    """Where in the batch each column of the schema stands."""
    columns = from_arrow(found)
    next_id = schema.max_id + 1
    # Raises unless every column found has its place.
    evolve(schema, columns, add=False, widen=False, next_id=next_id, version=schema.version)
    _require(schema.fields, columns, ())
    by_name = {fold(column.name): place for place, column in enumerate(columns)}
    return tuple(by_name.get(fold(field.name)) for field in schema.fields)


def _require(fields: tuple[Field, ...], found: tuple[Field, ...], parent: Path) -> None:
    by_name = {fold(field.name): field for field in found}
    for field in fields:
        path = (*parent, field.name)
        other = by_name.get(fold(field.name))
        if other is None:
            if not field.nullable:
                raise SchemaMismatchError(
                    f"column {dotted(path)}: found no such column, wanted {sql_type(field.type)} "
                    "NOT NULL. Add the column."
                )
        elif is_nested(other.type):
            _require(field.children, other.children, path)


def _admit(array: pa.Array, field: Field) -> pa.Array:
    try:
        validate(array)  # Arrow trusts buffers: a cast of unsound ones may crash us
        return _fit(array, field, (field.name,), lambda: np.ones(len(array), dtype=np.bool_))
    except (pa.ArrowException, OverflowError) as error:
        text = " ".join(str(error).split())
        raise SchemaMismatchError(
            f"column {dotted((field.name,))}: found {sql_type(array.type)} values that cannot be "
            f"stored as {sql_type(field.type)}: {text}"
        ) from error


def _fit(array: pa.Array, field: Field, path: Path, present: Present) -> pa.Array:
    array = _decoded(array)
    if not field.nullable and array.null_count:
        _refuse_nulls(array, field, path, present)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), field.type)
    if not is_nested(field.type):
        if pa.types.is_timestamp(array.type) and array.type.unit == "us":
            return array.view(field.type)  # Spark's, in the zone of its session: the same numbers
        return array if array.type == field.type else array.cast(field.type)
    if pa.types.is_struct(field.type):
        return _fit_struct(array, field, path, present)
    if pa.types.is_list(field.type):
        array = array if pa.types.is_list(array.type) else as_list(array)
    elif entries_of(array).null_count:
        raise pa.ArrowInvalid(f"{dotted(path)}: a map has a null in place of a key and a value")
    children = children_of(array)

    def entries_present() -> Mask:
        rows: Mask = present() & is_present(array)
        return rows[entry_rows(array)]

    fitting = [
        _fit(child, inner, (*path, inner.name), entries_present)
        for child, inner in zip(children, field.children, strict=True)
    ]
    return _rebuilt(array, field, children, fitting)


def _fit_struct(array: pa.Array, field: Field, path: Path, present: Present) -> pa.Array:
    places = {fold(inner.name): place for place, inner in enumerate(array.type)}
    children = children_of(array)

    def fields_present() -> Mask:
        return present() & is_present(array)

    fitting = []
    for inner in field.children:
        place = places.get(fold(inner.name))
        if place is None:
            fitting.append(pa.nulls(len(array), inner.type))
        else:
            fitting.append(_fit(children[place], inner, (*path, inner.name), fields_present))
    return _rebuilt(array, field, children, fitting)


def _rebuilt(
    array: pa.Array, field: Field, children: tuple[pa.Array, ...], fitting: list[pa.Array]
) -> pa.Array:
    """The array with its fitting children; the array itself if they are the ones it has."""
    same = len(children) == len(fitting) and all(map(_is, children, fitting))
    # A map whose pairs do not begin at 0 is read wrongly by some of Arrow's own functions.
    sound = not pa.types.is_map(array.type) or array.values.offset == 0
    if same and sound and array.type.equals(field.type, check_metadata=True):
        return array
    return rebuild(array, field.type, fitting)


def _is(one: object, other: object) -> bool:
    return one is other


def _decoded(array: pa.Array) -> pa.Array:
    """The values of a dictionary or of runs."""
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            import pyarrow.compute as pc  # Spark sends no runs

            array = pc.run_end_decode(array)
        else:
            return array


def _refuse_nulls(array: pa.Array, field: Field, path: Path, present: Present) -> None:
    nothing = array.null_count == len(array)  # also of type null, which has no bits
    nulls = present() if nothing else present() & ~is_present(array)
    if nulls.any():
        where = f" in row {int(nulls.argmax())}" if len(path) == 1 else ""
        raise SchemaMismatchError(
            f"column {dotted(path)}: found a null{where}, wanted {sql_type(field.type)} NOT NULL. "
            "Fill or drop the nulls."
        )


def read_column(
    array: pa.Array, stored: Field, wanted: Field, topic: str | None = None
) -> pa.Array:
    """A column of a frame as it is wanted: see ``read_up``.

    Raises:
        SchemaMismatchError: a value does not fit, because an older type is wanted. It names the
            topic, if that is given.
    """
    try:
        return read_up(array, stored, wanted)
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        place = "" if topic is None else f"topic {topic!r}, "
        raise SchemaMismatchError(
            f"{place}column {dotted((wanted.name,))}: found a value of {sql_type(stored.type)} "
            f"that does not fit {sql_type(wanted.type)}: {reason}. Read it with the topic's newest "
            "schema.",
            topic=topic,
        ) from error


def read_up(array: pa.Array, stored: Field, wanted: Field) -> pa.Array:
    """An array of a frame as a newer schema version has the field; inner fields go by their ids.

    Args:
        array: Sound values of the type of ``stored``.
        stored: The field as the frame's schema version has it.
        wanted: The field with the same id in the version that is read. A field inside it that has
            the id 0 is null: no stored field has this id.

    Raises:
        pa.ArrowInvalid: an older type is wanted, and a value does not fit.
    """
    if stored is wanted or stored == wanted:
        return array
    if pa.types.is_null(stored.type):
        return pa.nulls(len(array), wanted.type)
    if not is_nested(wanted.type):
        return array if array.type == wanted.type else _cast(array, wanted.type)
    inner = {field.id: place for place, field in enumerate(stored.children) if field.id}
    children = children_of(array)
    read = [
        read_up(children[inner[child.id]], stored.children[inner[child.id]], child)
        if child.id in inner
        else pa.nulls(len(array), child.type)
        for child in wanted.children
    ]
    return rebuild(array, wanted.type, read)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_null(kind):
        if array.null_count < len(array):
            raise pa.ArrowInvalid("it is not null")
        return pa.nulls(len(array))
    found = array.cast(kind)
    if pa.types.is_float32(kind) and pa.types.is_float64(array.type):
        # Arrow rounds where it would refuse an integer. As integers, because NaN is not equal NaN.
        again = found.cast(array.type)
        if not again.view(pa.int64()).equals(array.view(pa.int64())):
            raise pa.ArrowInvalid("a double has more digits than a float")
    return found
