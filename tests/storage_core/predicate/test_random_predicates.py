"""Any predicate on any rows: the same rows as plain Python and Arrow find; no frame is lost."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.predicate.binder import bind
from storage_core.predicate.parser import parse
from storage_core.schema.statistics import ColumnStatistics, column_statistics, from_json, to_json
from tests.support.sizes import examples
from tests.support.typed.random_predicates import (
    SCHEMA,
    Predicate,
    Row,
    arrays_of,
    predicates,
    rows,
)

DAMAGE: list[Any] = [
    None, ColumnStatistics(None, None, 0), ColumnStatistics(None, None, 99),
    ColumnStatistics(None, 3, 1), ColumnStatistics(5, 4, 0), ColumnStatistics("b", "a", 0),
    ColumnStatistics(True, True, -1), ColumnStatistics(1, None, 0), ColumnStatistics(1, "a", 0),
    ColumnStatistics(float("nan"), float("nan"), 0), ColumnStatistics(None, None, 99, True),
]  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(found=rows(), predicate=predicates())
def test_a_predicate_finds_the_rows_that_sql_finds(found: list[Row], predicate: Predicate) -> None:
    bound = pickle.loads(pickle.dumps(bind(parse(predicate.text), SCHEMA)))
    columns = arrays_of(found)
    mask = bound.mask({name: columns[name] for name in bound.columns}, len(found))
    assert mask.type == pa.bool_()
    assert mask.to_pylist() == [predicate.truth(row) is True for row in found], predicate.text
    if predicate.arrow is not None:
        table = pa.table({**columns, "row": pa.array(range(len(found)), pa.int64())})
        assert table.filter(predicate.arrow)["row"].equals(table.filter(mask)["row"])


@settings(max_examples=examples(80), deadline=None)
@given(found=rows(), predicate=predicates(), start=st.integers(0, 3))
def test_columns_may_be_slices_and_missing_ones_are_null(
    found: list[Row], predicate: Predicate, start: int
) -> None:
    bound = bind(parse(predicate.text), SCHEMA)
    columns = {name: array[start:] for name, array in arrays_of(found).items()}
    there = {name: array for name, array in columns.items() if array.null_count < len(array)}
    wanted = [predicate.truth(row) is True for row in found[start:]]
    assert bound.mask(there, len(wanted)).to_pylist() == wanted


@settings(max_examples=examples(150), deadline=None)
@given(found=rows(), predicate=predicates(), data=st.data())
def test_statistics_never_leave_out_a_frame_with_a_row_that_matches(
    found: list[Row], predicate: Predicate, data: st.DataObject
) -> None:
    bound = bind(parse(predicate.text), SCHEMA)
    columns = arrays_of(found)
    known = {name: column_statistics(array) for name, array in columns.items()}
    kept = from_json(to_json({i: each for i, each in enumerate(known.values()) if each})) or {}
    statistics: dict[str, ColumnStatistics | None] = {
        name: kept.get(index) for index, name in enumerate(known)
    }
    for name in data.draw(st.sets(st.sampled_from(list(bound.columns) or ["at"]), max_size=2)):
        if data.draw(st.booleans()):
            statistics.pop(name, None)
        elif data.draw(st.booleans()):
            statistics[name] = None
        else:
            damaged = data.draw(st.sampled_from(DAMAGE))
            if _is_refused(damaged, SCHEMA.field(name).type, len(found)):
                statistics[name] = damaged
    if any(predicate.truth(row) is True for row in found):
        assert bound.may_match(statistics, len(found)), predicate.text


def _is_refused(found: ColumnStatistics | None, kind: pa.DataType, count: int) -> bool:
    """Whether statistics contradict themselves. Others are a claim that no reader can doubt."""
    if found is None or not 0 <= found.nulls <= count:
        return True
    if found.minimum is None:
        return found.maximum is not None or found.nulls != count or found.has_nan
    return found.maximum == 4 or not pa.types.is_integer(kind)


@settings(max_examples=examples(80), deadline=None)
@given(found=rows(max_size=1), predicate=predicates())
def test_a_frame_of_one_row_that_does_not_match_is_left_out(
    found: list[Row], predicate: Predicate
) -> None:
    """Statistics of one row know all of it but texts cut short and fields inside of structs."""
    bound = bind(parse(predicate.text), SCHEMA)
    if "inner" in bound.columns:
        return
    known = {name: column_statistics(array) for name, array in arrays_of(found).items()}
    matches = any(predicate.truth(row) is True for row in found)
    if len(found) == 1:
        assert bound.may_match(known, 1) == matches, predicate.text
