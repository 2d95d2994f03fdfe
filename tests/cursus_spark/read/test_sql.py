"""SQL: temporary views, catalog tables, options at the query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.spark.dataframes import TOPIC, Log, one_line_error

pytestmark = pytest.mark.matrix


@pytest.fixture
def tables(log: Log) -> Iterator[Log]:
    """A topic of two records, and no table of ours left behind."""
    log.create(2).append(TOPIC, 0, [b"a", b"b"])
    yield log
    for name in ("orders_table", "copy_table", "saved_table", "streamed_table"):
        log.spark.sql(f"DROP TABLE IF EXISTS {name}")
    log.spark.sql("DROP VIEW IF EXISTS orders_view")


def texts(log: Log, query: str) -> list[str]:
    return sorted(row[0] for row in log.spark.sql(query).collect())


def test_a_temporary_view_is_read_and_inserted_into(tables: Log) -> None:
    sql = tables.spark.sql
    sql(
        f"CREATE TEMP VIEW orders_view USING cursus OPTIONS (path '{tables.path}', topic '{TOPIC}')"
    )
    select = "SELECT CAST(value AS STRING) FROM orders_view"
    assert texts(tables, select) == ["a", "b"]
    sql("INSERT INTO orders_view (key, value, partition) SELECT X'6B', X'63', 1")
    sql("INSERT INTO orders_view BY NAME SELECT CAST('d' AS BINARY) AS value")
    assert tables.texts() == ["a", "b", "c", "d"]
    assert tables.offsets() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    stamped = tables.read().where("timestamp is null or timestampType <> 1").count()
    assert stamped == 0, "columns that INSERT fills with nulls count as absent"


def test_a_catalog_table_remembers_where_it_reads(tables: Log) -> None:
    sql = tables.spark.sql
    sql(f"CREATE TABLE orders_table USING cursus OPTIONS (path '{tables.path}', topic '{TOPIC}')")
    select = "SELECT CAST(value AS STRING) FROM orders_table"
    assert texts(tables, select) == ["a", "b"]
    tables.write(tables.values("c"))
    assert texts(tables, select) == ["a", "b", "c"], "a table is planned again by each query"
    newest = f'{select} WITH (startingOffsets = \'{{"{TOPIC}":{{"0":1}}}}\')'
    assert texts(tables, newest) == ["b", "c"]
    assert tables.spark.read.option("endingOffsets", '{"orders":{"0":1}}').table(
        "orders_table"
    ).count() == 1  # fmt: skip


def test_an_insert_into_a_catalog_table_names_its_target(tables: Log) -> None:
    sql = tables.spark.sql
    sql(f"CREATE TABLE orders_table USING cursus OPTIONS (path '{tables.path}', topic '{TOPIC}')")
    place = f"WITH (path = '{tables.path}', topic = 'copy')"
    sql(f"INSERT INTO orders_table {place} (key, value) SELECT X'6B', CAST('new' AS BINARY)")
    assert tables.texts("copy") == ["new"]
    found = one_line_error(lambda: sql("INSERT INTO orders_table (value) SELECT X'78'"))
    assert found.startswith("[CURSUS_OPTION_MISSING] Option 'path' must be specified")
    assert "use INSERT INTO t WITH (path = '...', topic = '...')" in found
    overwrite = one_line_error(
        lambda: sql(f"INSERT OVERWRITE orders_table {place} (value) SELECT X'78'")
    )
    assert overwrite.startswith("[CURSUS_APPEND_ONLY]")


def test_a_select_never_leads_an_insert_to_its_own_topic(tables: Log) -> None:
    """The writer gets the columns of the source with their metadata: it must not follow it."""
    sql = tables.spark.sql
    sql(f"CREATE TABLE orders_table USING cursus OPTIONS (path '{tables.path}', topic '{TOPIC}')")
    source = tables.spark.table("orders_table").select("value")
    found = one_line_error(lambda: source.write.format("cursus").mode("append").save())
    assert found.startswith("[CURSUS_OPTION_MISSING] Option 'path'")
    tables.write(source, "copy")
    assert tables.texts("copy") == ["a", "b"]
    assert tables.texts() == ["a", "b"]


def test_tables_whose_columns_are_not_ours_are_read_with_options(
    tables: Log, tmp_path: Path
) -> None:
    sql, place = tables.spark.sql, f"path '{tables.path}'"
    sql(f"CREATE TABLE orders_table (value STRING) USING cursus OPTIONS ({place}, topic '{TOPIC}')")
    rows = tables.read(schema="value string")
    rows.write.format("cursus").options(path=str(tables.path), topic="saved").mode(
        "append"
    ).saveAsTable("saved_table")
    stream = tables.spark.readStream.format("cursus").schema("value string")
    (
        stream.options(subscribe=TOPIC, startingOffsets="earliest").load(str(tables.path))
        .writeStream.format("cursus").options(path=str(tables.path), topic="streamed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).toTable("streamed_table").awaitTermination()
    )  # fmt: skip
    made = {"orders_table": TOPIC, "saved_table": "saved", "streamed_table": "streamed"}
    for table, topic in made.items():
        options = {"path": str(tables.path), "subscribe": topic}
        given = ", ".join(f"{name} = '{text}'" for name, text in options.items())
        assert texts(tables, f"SELECT value FROM {table} WITH ({given})") == ["a", "b"]
        assert tables.spark.read.options(**options).table(table).count() == 2
        found = one_line_error(partial(texts, tables, f"SELECT value FROM {table}"))
        assert found.startswith("[CURSUS_OPTION_MISSING] Option 'path' must be specified")
        hint = "SELECT ... FROM t WITH (path = '...', subscribe = '...')."
        assert found.endswith(f"For a catalog table: {hint}")
    create = f"CREATE TABLE copy_table USING cursus OPTIONS ({place}, topic 'copy')"
    found = one_line_error(lambda: sql(f"{create} AS SELECT 'x' AS value"))
    assert found.startswith("[CURSUS_OPTION_MISSING]")
    assert not tables.spark.catalog.tableExists("copy_table")
    assert tables.store().topics() == [TOPIC, "saved", "streamed"]


def test_a_table_with_a_location_and_a_view_with_columns_are_read_as_they_are(tables: Log) -> None:
    sql, path = tables.spark.sql, tables.path
    sql(f"CREATE TABLE orders_table USING cursus OPTIONS (subscribe '{TOPIC}') LOCATION '{path}'")
    assert texts(tables, "SELECT CAST(value AS STRING) FROM orders_table") == ["a", "b"]
    sql(
        "CREATE TEMP VIEW orders_view (value STRING) USING cursus "
        f"OPTIONS (path '{path}', subscribe '{TOPIC}')"
    )
    assert texts(tables, "SELECT value FROM orders_view") == ["a", "b"]
