"""What is written is read back, column by column."""

from __future__ import annotations

import datetime
from itertools import combinations
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cursus_spark.schema import HEADERS, read_schema
from tests.support.spark.dataframes import TOPIC, Log, first

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
SECOND = datetime.timedelta(seconds=1)
OPTIONAL: dict[str, tuple[str, list[Any]]] = {
    "key": ("binary", [b"k1", None, b""]),
    "topic": ("string", [TOPIC, TOPIC, TOPIC]),
    "partition": ("int", [1, None, 0]),
    "timestamp": ("timestamp", [MOMENT, MOMENT + SECOND, MOMENT - SECOND]),
    "headers": (HEADERS.simpleString(), [[("a", b"1"), ("a", None)], None, []]),
}
VALUES: list[bytes | None] = [b"v1", None, b"\xff\x00"]
CHOICES = [chosen for count in range(len(OPTIONAL) + 1) for chosen in combinations(OPTIONAL, count)]


def topic_of(chosen: tuple[str, ...]) -> str:
    return "-".join(("value", *chosen))


def rows_of(log: Log, chosen: tuple[str, ...]) -> DataFrame:
    columns = [OPTIONAL[name] for name in chosen]
    schema = ", ".join(f"{name} {OPTIONAL[name][0]}" for name in chosen)
    rows = [(*(found[row] for _, found in columns), VALUES[row]) for row in range(len(VALUES))]
    return log.frame(rows, f"{schema}, value binary".removeprefix(", "))


def expected_rows(chosen: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows to be read."""
    given = {name: OPTIONAL[name][1] for name in chosen}
    nothing = [None] * len(VALUES)
    places = [0 if place is None else place for place in given.get("partition", nothing)]
    if "partition" not in given and "key" in given:
        places = [KEY_PLACES[key] for key in OPTIONAL["key"][1]]
    rows, ends = [], {0: 0, 1: 0}
    for row, place in enumerate(places):
        rows.append(
            (
                given.get("key", nothing)[row],
                VALUES[row],
                topic_of(chosen),
                place,
                ends[place],
                given["timestamp"][row] if "timestamp" in given else None,
                0 if "timestamp" in given else 1,
                given.get("headers", nothing)[row] or None,  # as Kafka's source
            )
        )
        ends[place] += 1
    return rows


# As Kafka's producer sends them to two partitions; without a key, task 0 owns partition 0.
KEY_PLACES = {b"k1": 1, b"": 1, None: 0}


def test_every_combination_of_columns_comes_back(log: Log) -> None:
    for chosen in CHOICES:
        # The option takes precedence over the column, so each combination has a topic of its own.
        log.write(rows_of(log, chosen), topic_of(chosen), numPartitions=2)
    found = log.read(None, subscribePattern="value.*", includeHeaders="true")
    stamped = sf.col("topic").contains("timestamp")
    comparable = found.withColumn("timestamp", sf.when(stamped, sf.col("timestamp")))
    expected = [row for chosen in CHOICES for row in expected_rows(chosen)]
    schema = read_schema(include_headers=True)
    assert_df_equality(
        comparable,
        log.spark.createDataFrame(expected, schema),
        ignore_row_order=True,
        ignore_nullable=True,
    )
    appended = found.where(~stamped).select(sf.max(sf.current_timestamp() - sf.col("timestamp")))
    assert first(appended)[0] < datetime.timedelta(minutes=10)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_text_and_bytes_are_stored_alike(log: Log, kind: str) -> None:
    log.write(
        log.frame([("ké", "vä")], "key string, value string").selectExpr(
            f"cast(key as {kind}) key", f"cast(value as {kind}) value"
        )
    )
    assert_df_equality(
        log.read(schema="value string, key string"),
        log.frame([("vä", "ké")], "value string, key string"),
    )


@pytest.mark.matrix
def test_what_was_read_can_be_written_as_it_is(log: Log) -> None:
    log.write(rows_of(log, ("key", "partition", "timestamp", "headers")), numPartitions=2)
    log.write(log.read(includeHeaders="true"), "copy", numPartitions=2)
    one, other = (log.read(topic, includeHeaders="true") for topic in (TOPIC, "copy"))
    assert_df_equality(
        one.drop("topic"), other.drop("topic"), ignore_row_order=True, ignore_nullable=True
    )


@pytest.mark.matrix
def test_large_var_types_of_the_session_are_accepted(log: Log) -> None:
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    log.spark.conf.set(setting, "true")
    try:
        log.write(log.frame([(b"k", "v")], "key binary, value string"))
        rows = log.read(schema="key binary, value string")
        assert [tuple(row) for row in rows.collect()] == [(b"k", "v")]
    finally:
        log.spark.conf.unset(setting)


@pytest.mark.matrix
def test_values_of_16_mib_come_back_whole(log: Log) -> None:
    size = 16 << 20
    made = log.spark.range(2).selectExpr("cast(repeat(string(id), 16777216) as binary) as value")
    log.write(made.coalesce(1))
    found = log.read().selectExpr("length(value) n", "substring(value, 16777216, 1) last")
    assert sorted(tuple(row) for row in found.collect()) == [(size, b"0"), (size, b"1")]


@pytest.mark.matrix
def test_no_rows_make_a_topic_without_records(log: Log) -> None:
    log.write(log.frame([], "value string"), numPartitions=3)
    assert log.read().collect() == []
    assert log.read().count() == 0
    assert log.store().topic(TOPIC).partitions == 3


def test_many_small_writes_are_one_sequence(log: Log) -> None:
    for number in range(30):
        log.write(log.values(f"{number:02d}"))
    assert log.texts() == [f"{number:02d}" for number in range(30)]
    assert log.offsets() == [(0, number) for number in range(30)]
    segments = log.path / "topics" / TOPIC / "0" / "segments"
    assert len(list(segments.glob("*.log"))) == 1
    assert list((log.path / "staging").iterdir()) == []
