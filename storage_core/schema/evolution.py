"""How the columns of a typed topic may change: columns are added, types grow, nothing else.

Columns and struct fields are matched by name, in any case as in Spark. A type may grow from int8 to
int16, int32 and int64, from float32 to float64, and from a decimal to one with at least as many
digits on both sides of the point. A column of type null may become any other. So every value that a
topic has stored can be read as the newest type without loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from ..errors import InvalidSchemaError, SchemaMismatchError
from .document import type_name
from .fields import (
    MAX_FIELD_ID,
    Field,
    Path,
    SchemaVersion,
    check_columns,
    dotted,
    fold,
    is_nested,
    nested_type,
    sql_type,
)

_GROWING = ((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
_RANKS = {
    kind: (row, rank) for row, kinds in enumerate(_GROWING) for rank, kind in enumerate(kinds)
}


class Advice(NamedTuple):
    """What to do about a column that is unknown, one whose type may grow, and any other."""

    add: str
    widen: str
    other: str = "Cast it."


FOR_ROWS = Advice(
    "Drop the column, or add it first with Store.alter_topic(add_columns=...) or cursus alter "
    "--add-column.",
    "Cast it. A write of Spark with mergeSchema.typeWidening=true, or a job with "
    "Store.register_schema(widen=True), widens the column.",
)
"""For rows that are written without Spark."""
FOR_JOBS = Advice(
    "Drop the column, or set mergeSchema=true to add it.",
    "Cast it, or set mergeSchema=true and mergeSchema.typeWidening=true.",
)
"""For the columns of a write job, which may bring new ones."""
FOR_NEW_COLUMNS = Advice(
    "Drop the column.",
    "The topic has the column already. To widen it, write wider values with Spark and "
    "mergeSchema.typeWidening=true, or in a job with Store.register_schema(widen=True).",
    "The topic has the column already. Give the new one another name.",
)
"""For columns that are added without rows."""


def evolve(
    current: SchemaVersion,
    wanted: Sequence[Field],
    *,
    add: bool,
    widen: bool,
    next_id: int,
    version: int,
    registered: Iterable[SchemaVersion] = (),
    advice: Advice = FOR_ROWS,
) -> SchemaVersion:
    """The schema that holds all columns of ``current`` and can take rows of the wanted columns.

    Ids of ``wanted`` are ignored. A column that is not in ``wanted`` stays. The result is
    ``current`` itself if nothing has to change.

    Args:
        current: The schema of the topic.
        wanted: The columns of the rows to be written, or columns to be added.
        add: Allow new columns and new struct fields. They become nullable.
        widen: Allow types that grow.
        next_id: The id of the first new field: higher than any that the topic has ever used.
        version: The version of the new schema.
        registered: Versions that other writers registered. A new field gets the id that one of
            them gave to the same name and type, so that writers who add the same column at the
            same time do not conflict.
        advice: What an error advises.

    Raises:
        SchemaMismatchError: a column is unknown or has a type that does not fit.
        InvalidSchemaError: a new column has a name that is not allowed.
    """
    check_columns(wanted)
    if next_id <= current.max_id:
        raise ValueError(f"next_id must be higher than {current.max_id}, got {next_id}")
    evolution = _Evolution(add, widen, next_id, registered, advice)
    fields = evolution.merge(current.fields, wanted, (), 0)
    return current if fields is current.fields else SchemaVersion(version, fields)


class _Evolution:
    def __init__(
        self,
        add: bool,
        widen: bool,
        next_id: int,
        registered: Iterable[SchemaVersion],
        advice: Advice,
    ) -> None:
        self._add = add
        self._widen = widen
        self._next_id = next_id
        self._registered = registered
        self._advice = advice
        self._known: dict[tuple[int, str], list[Field]] | None = None

    def merge(
        self, current: tuple[Field, ...], wanted: Sequence[Field], parent: Path, parent_id: int
    ) -> tuple[Field, ...]:
        """The fields of a schema or struct; the same tuple if nothing changes."""
        places = {fold(field.name): place for place, field in enumerate(current)}
        fields = list(current)
        for field in wanted:
            place = places.get(fold(field.name))
            if place is not None:
                path = (*parent, current[place].name)
                fields[place] = self._match(current[place], field, path)
            elif self._add:
                fields.append(self._adopt(replace(field, nullable=True), parent_id))
            else:
                raise SchemaMismatchError(
                    f"column {dotted((*parent, field.name))}: found {sql_type(field.type)}, but "
                    f"the topic has no such column. {self._advice.add}"
                )
        same = len(fields) == len(current) and all(map(_is, fields, current))
        return current if same else tuple(fields)

    def _match(self, current: Field, wanted: Field, path: Path) -> Field:
        if current.type == wanted.type or pa.types.is_null(wanted.type):
            return current
        if is_nested(current.type) and type_name(current.type) == type_name(wanted.type):
            return self._match_children(current, wanted, path)
        if pa.types.is_null(current.type):
            if not (self._add or self._widen):
                raise _mismatch(current, wanted, path, self._advice.add)
            return self._adopt(replace(wanted, name=current.name, nullable=True), 0, current.id)
        both = common_type(current.type, wanted.type)
        if both is None:
            raise _mismatch(current, wanted, path, self._advice.other)
        if both == current.type:
            return current
        if not self._widen:
            raise _mismatch(current, wanted, path, self._advice.widen)
        return replace(current, type=both, annotation=wanted.annotation)

    def _match_children(self, current: Field, wanted: Field, path: Path) -> Field:
        if pa.types.is_struct(current.type):
            children = self.merge(current.children, wanted.children, path, current.id)
        else:
            children = tuple(
                self._match(mine, other, (*path, mine.name))
                for mine, other in zip(current.children, wanted.children, strict=True)
            )
        if all(map(_is, children, current.children)) and len(children) == len(current.children):
            return current
        if current.annotation:
            # The writer's name stands for exactly these fields, as Variant does.
            raise _mismatch(current, wanted, path, f"Its type is {current.annotation}.")
        return replace(current, type=nested_type(current.type, children), children=children)

    def _adopt(self, field: Field, parent_id: int, number: int = 0) -> Field:
        """A new field with ids of this topic, at every depth."""
        if not number:
            number = self._id_of(field, parent_id)
        children = tuple(self._adopt(child, number) for child in field.children)
        return replace(field, id=number, children=children)

    def _id_of(self, field: Field, parent_id: int) -> int:
        if self._known is None:
            self._known = {}
            for version in self._registered:
                _index(version.fields, 0, self._known)
        for known in self._known.get((parent_id, fold(field.name)), ()):
            if known.type == field.type and known.name == field.name:
                return known.id
        number, self._next_id = self._next_id, self._next_id + 1
        if number > MAX_FIELD_ID:
            raise InvalidSchemaError(
                f"column {dotted((field.name,))}: the topic has used all {MAX_FIELD_ID} field ids."
            )
        return number


def _index(
    fields: Iterable[Field], parent_id: int, known: dict[tuple[int, str], list[Field]]
) -> None:
    for field in fields:
        known.setdefault((parent_id, fold(field.name)), []).append(field)
        _index(field.children, field.id, known)


def _is(one: object, other: object) -> bool:
    return one is other


def _mismatch(current: Field, wanted: Field, path: Path, advice: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {dotted(path)}: found {sql_type(wanted.type)}, wanted "
        f"{sql_type(current.type)}. {advice}"
    )


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The smallest type that holds all values of two types without fields inside, or None."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if one in _RANKS and other in _RANKS and _RANKS[one][0] == _RANKS[other][0]:
        return max(one, other, key=_RANKS.__getitem__)
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else None
    return None


def covers(current: SchemaVersion, other: SchemaVersion) -> bool:
    """Whether ``current`` has every field of ``other``, by id, with the same or a wider type."""
    return _covers_all(current.fields, other.fields)


def _covers_all(current: tuple[Field, ...], other: tuple[Field, ...]) -> bool:
    if current is other:
        return True
    known = {field.id: field for field in current}
    return all(field.id in known and _covers(known[field.id], field) for field in other)


def _covers(current: Field, other: Field) -> bool:
    if current is other:
        return True
    if current.name != other.name or (other.nullable and not current.nullable):
        return False
    if is_nested(other.type):
        same_kind = type_name(current.type) == type_name(other.type)
        return same_kind and _covers_all(current.children, other.children)
    if is_nested(current.type):
        return bool(pa.types.is_null(other.type))
    return bool(common_type(current.type, other.type) == current.type)


def merge_versions(current: SchemaVersion, other: SchemaVersion, *, version: int) -> SchemaVersion:
    """The schema that covers both: the columns of ``current``, then those that only ``other`` has.

    Both evolved from one version of the topic, so an id means one field in both, and every field
    keeps its id: frames that are staged already name it. The result is ``current`` itself if it
    covers ``other``.

    Raises:
        SchemaMismatchError: two writers added one name with two types, or changed the type of one
            column in ways that no type covers.
    """
    if covers(current, other):
        return current
    return SchemaVersion(version, _join_all(current.fields, other.fields, ()))


def _join_all(
    current: tuple[Field, ...], other: tuple[Field, ...], parent: Path
) -> tuple[Field, ...]:
    places = {field.id: place for place, field in enumerate(current)}
    names: Mapping[str, Field] = {fold(field.name): field for field in current}
    fields = list(current)
    for field in other:
        path = (*parent, field.name)
        if field.id in places:
            place = places[field.id]
            fields[place] = _join(current[place], field, path)
        elif fold(field.name) in names:
            raise _conflict(names[fold(field.name)], field, path)
        else:
            fields.append(field)
    return tuple(fields)


def _join(current: Field, other: Field, path: Path) -> Field:
    if _covers(current, other):
        return current
    if pa.types.is_null(current.type):
        return other
    if is_nested(current.type) and type_name(current.type) == type_name(other.type):
        children = _join_all(current.children, other.children, path)
        return replace(current, type=nested_type(current.type, children), children=children)
    both = common_type(current.type, other.type)
    if both is None or is_nested(current.type) or is_nested(other.type):
        raise _conflict(current, other, path)
    return replace(other if both == other.type else current, type=both)


def _conflict(current: Field, other: Field, path: Path) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {dotted(path)}: found {sql_type(other.type)}, but another writer has just added "
        f"it as {sql_type(current.type)}. Nothing was written; cast it if the types differ, and "
        "write again."
    )
