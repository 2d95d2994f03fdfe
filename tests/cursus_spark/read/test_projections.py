"""``.schema(...)`` reads some columns, in any order, and text where text is wanted."""

from __future__ import annotations

import datetime

import pytest

from cursus_spark.schema import COLUMNS
from tests.support.spark.dataframes import TOPIC, Log, first, one_line_error
from tests.support.stores import T0


@pytest.fixture
def filled(log: Log) -> Log:
    log.create().append(
        TOPIC, 0, [b"v", None], keys=[b"k", None], timestamps=[T0, T0 + 1],
        headers=[[("h", b"1")], None],
    )  # fmt: skip
    return log


MOMENT = datetime.datetime.fromtimestamp(T0 / 1e6, datetime.UTC).replace(tzinfo=None)
EXPECTED = {
    "key": [b"k", None],
    "value": [b"v", None],
    "topic": [TOPIC, TOPIC],
    "partition": [0, 0],
    "offset": [0, 1],
    "timestamp": [MOMENT, MOMENT + datetime.timedelta(microseconds=1)],
    "timestampType": [0, 0],
    "headers": [[("h", b"1")], None],
}


SINGLE: list[tuple[str, ...]] = [(name,) for name in COLUMNS]
MIXED = [tuple(reversed(list(COLUMNS))), ("headers", "key", "timestampType"), ("offset", "value")]


@pytest.mark.parametrize("names", SINGLE + MIXED, ids="-".join)
def test_columns_come_in_the_order_asked_for(filled: Log, names: tuple[str, ...]) -> None:
    schema = ", ".join(f"{name} {COLUMNS[name].simpleString()}" for name in names)
    found = filled.read(schema=schema)
    assert tuple(found.columns) == names
    rows = list(zip(*(EXPECTED[name] for name in names), strict=True))
    assert [tuple(row) for row in found.collect()] == rows


def test_text_is_decoded_and_nulls_stay(filled: Log) -> None:
    rows = filled.read(schema="value string, key string").collect()
    assert [tuple(row) for row in rows] == [("v", "k"), (None, None)]


def test_bytes_that_are_not_text_are_an_error_that_names_the_offset(log: Log) -> None:
    log.create().append(TOPIC, 0, [b"good"] * 5 + [b"\xff\xfe"] + [b"good"])
    found = one_line_error(lambda: log.read(schema="value string").collect())
    assert found == (
        "[CURSUS_NOT_UTF8] orders-0: the value at offset 5 is not UTF-8. Read it as binary: "
        ".schema('value binary')."
    )
    assert log.read(schema="value binary").count() == 7


def test_headers_are_there_only_when_asked_for(filled: Log) -> None:
    assert "headers" not in filled.read().columns
    assert first(filled.read(includeHeaders="true")).headers == [("h", b"1")]


def test_counting_and_selecting_need_no_schema(filled: Log) -> None:
    assert filled.read().count() == 2
    assert [row.offset for row in filled.read().select("offset").collect()] == [0, 1]
    assert filled.read().where("key is not null").count() == 1


def test_two_queries_on_one_dataframe_do_not_share_a_filter(filled: Log) -> None:
    """With ``pushFilters`` Spark 4.3 answers the second one from the first one's plan."""
    frame = filled.read()
    assert frame.where("offset > 0").count() == 1
    assert frame.count() == 2
    assert frame.where("offset > 0").union(frame).count() == 3
