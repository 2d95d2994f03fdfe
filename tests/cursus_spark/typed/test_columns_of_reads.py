"""The columns of a read of typed topics: from the topics at ``load()``, or chosen by the query."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.options.parse import parse_stream_read_options
from cursus_spark.read.reader import CursusReader
from cursus_spark.read.typed_topics import QueryColumns, columns_of_query
from cursus_spark.typed.spark_types import arrow_fields
from storage_core import Store
from storage_core.schema.fields import from_arrow
from tests.support.spark.dataframes import Log, one_line_error

COLUMNS = (
    "id BIGINT NOT NULL, user STRING, amount FLOAT, price DECIMAL(5,2), tags ARRAY<STRING>, "
    "ctx STRUCT<clicks: INT, `a.b`: STRING>, span INTERVAL DAY TO HOUR, v VARIANT"
)
METADATA = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"


def struct(ddl: str) -> t.StructType:
    found = t.StructType.fromDDL(ddl)  # parsed by the session
    assert isinstance(found, t.StructType)
    return found


def create(store: Store, topic: str, ddl: str) -> None:
    store.create_topic(topic, schema=from_arrow(*arrow_fields(struct(ddl))))


@pytest.fixture
def store(log: Log) -> Store:
    made = log.store(create=True)
    create(made, "events", COLUMNS)
    return made


def source(store: Store, topics: str = "events", **options: str) -> CursusDataSource:
    return CursusDataSource({"path": str(store.path), "subscribe": topics, **options})


def refused(store: Store, schema: str, topics: str = "events", **options: str) -> str:
    with pytest.raises(CursusError) as caught:
        source(store, topics, **options).reader(struct(schema))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_load_gives_the_columns_of_the_topic(log: Log) -> None:
    with log.store(create=True) as store:
        create(store, "events", COLUMNS)
        create(store, "same", COLUMNS)
    assert log.read("events").schema == struct(COLUMNS)
    assert log.read("events,same").schema == struct(COLUMNS)
    assert log.read("events", includeMetadata=True).schema == struct(f"{COLUMNS}, {METADATA}")
    assert log.read("events").count() == 0
    stream = log.spark.readStream.format("cursus").option("subscribe", "events")
    assert stream.load(str(log.path)).schema == struct(COLUMNS)
    assert one_line_error(lambda: log.read("events", "usr string").count()) == (
        "[CURSUS_COLUMN_UNKNOWN] Column 'usr' in .schema(...) is not a column of topic 'events'. "
        "Available: id, user, amount, price, tags, ctx, span, v, _topic, _partition, _offset, "
        "_timestamp."
    )


def test_columns_that_are_added_are_there_at_the_next_load(store: Store) -> None:
    store.alter_topic("events", add_columns=pa.schema([("new", pa.int64())]))
    assert source(store).schema() == struct(f"{COLUMNS}, new BIGINT")


def test_a_projection_may_be_any_columns_in_any_order(store: Store) -> None:
    for schema in (
        "user string",
        "_offset long, ID bigint, _topic string",
        "ctx struct<`a.b`: string>, id bigint NOT NULL",
        "amount double, price decimal(7,3), id int NOT NULL",
    ):
        reader = source(store).reader(struct(schema))
        assert isinstance(reader, CursusReader), schema


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            "nope int",
            "[CURSUS_COLUMN_UNKNOWN] Column 'nope' in .schema(...) is not a column of topic "
            "'events'. Available: id, user, amount, price, tags, ctx, span, v, _topic, "
            "_partition, _offset, _timestamp.",
        ),
        (
            "user bigint",
            "[CURSUS_COLUMN_TYPE] Column 'user' in .schema(...): found bigint, wanted string. Use "
            "the topic's type, and cast it in the query.",
        ),
        (
            "ctx struct<clicks: string>",
            "[CURSUS_COLUMN_TYPE] Column 'ctx.clicks' in .schema(...): found string, wanted int. "
            "Use the topic's type, and cast it in the query.",
        ),
        (
            "ctx struct<nope: int>",
            "[CURSUS_COLUMN_UNKNOWN] Column 'ctx.nope' in .schema(...) is not a field of the "
            "topic's column. Available: clicks, a.b.",
        ),
        (
            "user string NOT NULL",
            "[CURSUS_COLUMN_TYPE] Column 'user' in .schema(...) is declared NOT NULL, but its "
            "values may be null. Remove NOT NULL.",
        ),
        (
            "_offset int",
            "[CURSUS_COLUMN_TYPE] Column '_offset' in .schema(...): found int, wanted bigint. "
            "Correct it.",
        ),
        ("", "[CURSUS_SCHEMA_EMPTY] .schema(...) names no column. Name at least one."),
    ],
)
def test_a_projection_that_the_topic_does_not_have(store: Store, schema: str, text: str) -> None:
    assert refused(store, schema) == text


def test_a_column_is_named_once_in_any_case(store: Store) -> None:
    assert refused(store, "user string, USER string") == (
        "[CURSUS_COLUMN_DUPLICATE] Columns 'user' and 'USER' in .schema(...) differ only in case. "
        "They are one name to a topic, whatever spark.sql.caseSensitive is. Rename or drop one."
    )
    assert refused(store, "user string, id bigint, user string") == (
        "[CURSUS_COLUMN_DUPLICATE] Column 'user' is named 2 times in .schema(...). Name it once."
    )


def test_records_and_typed_topics_do_not_mix(store: Store) -> None:
    store.create_topic("records")
    assert refused(store, "id bigint", "events,records") == (
        "[CURSUS_KINDS_DIFFER] Topic 'events' is typed and topic 'records' has records: one query "
        "can't read both. Read them one by one."
    )
    assert source(store, "records").schema().names[:2] == ["key", "value"]


def test_several_topics_have_equal_columns_or_are_merged(store: Store) -> None:
    create(store, "one", "id INT NOT NULL, a STRING, ctx STRUCT<x: INT>")
    create(store, "two", "id BIGINT NOT NULL, b DATE NOT NULL, ctx STRUCT<y: INT>")
    assert refused_at_load(store, "one,two") == (
        "[CURSUS_SCHEMAS_DIFFER] Topics 'one' and 'two' have different columns: id is int NOT NULL "
        "and bigint NOT NULL. Set mergeSchema to true to read all columns of both, or read them "
        "one by one."
    )
    merged = source(store, "one,two", mergeSchema="true")
    assert merged.schema() == struct(
        "id BIGINT NOT NULL, a STRING, ctx STRUCT<x: INT, y: INT>, b DATE"
    )
    merged.reader(merged.schema())
    create(store, "text", "id STRING")
    assert refused_at_load(store, "one,text", mergeSchema="true") == (
        "[CURSUS_SCHEMAS_DIFFER] Topic 'text', column id: found string, wanted int: the topics' "
        "types do not go together. Read them one by one."
    )


def test_merged_columns_are_not_null_only_where_they_are_in_every_topic(store: Store) -> None:
    """At every depth: what a topic lacks, or may have as null, is null among its rows."""
    one = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("z", pa.int8(), False)])
    two = pa.struct([pa.field("Z", pa.int8(), nullable=False), pa.field("y", pa.int64())])
    for topic, inner, element in (("one", one, False), ("two", two, True)):
        items = pa.list_(pa.field("element", inner, nullable=element))
        values = pa.map_(pa.string(), pa.field("value", inner, nullable=element))
        store.create_topic(topic, schema=pa.schema([("s", inner), ("l", items), ("m", values)]))
    for topic, given in (("one", {"x": 1, "z": 7}), ("two", {"Z": 7, "y": 2})):
        schema = store.schema(topic)
        assert schema is not None
        columns = {"s": [given], "l": [[given]], "m": [[("k", given)]]}
        store.append_table(topic, pa.table(columns, schema=schema.arrow))
    merged = source(store, "one,two", mergeSchema="true")
    s = "STRUCT<x: BIGINT, z: TINYINT NOT NULL, y: BIGINT>"
    assert merged.schema() == struct(f"s {s}, l ARRAY<{s}>, m MAP<STRING, {s}>")
    reader = merged.reader(merged.schema())
    found = [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    wanted = [{"x": 1, "z": 7, "y": None}, {"x": None, "z": 7, "y": 2}]
    assert found == [{"s": each, "l": [each], "m": [("k", each)]} for each in wanted]


def refused_at_load(store: Store, topics: str, **options: str) -> str:
    with pytest.raises(CursusError) as caught:
        source(store, topics, **options).schema()
    return str(caught.value)


def stream_columns(store: Store, **more: str) -> QueryColumns:
    options = parse_stream_read_options({"path": str(store.path), "subscribe": "events", **more})
    found = columns_of_query(options)
    assert found is not None
    return QueryColumns(options, found[0], typed=True, loaded=found[1])


def test_a_running_stream_warns_once_of_new_columns(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    columns = stream_columns(store)
    columns.check(store, ["events"])
    store.alter_topic("events", add_columns=pa.schema([("new", pa.int64())]))
    with caplog.at_level(logging.WARNING):
        columns.check(store, ["events"])
        columns.check(store, ["events"])
    assert [record.getMessage() for record in caplog.records] == [
        "Topic 'events': column new bigint was added since the query began. The query keeps its "
        "columns. Start it again to read this."
    ]


def test_a_running_stream_may_fail_at_new_columns(store: Store) -> None:
    columns = stream_columns(store, schemaEvolutionMode="fail")
    columns.check(store, ["events"])
    store.alter_topic("events", add_columns=pa.schema([("new", pa.int64())]))
    with pytest.raises(CursusError) as caught:
        columns.check(store, ["events"])
    assert str(caught.value) == (
        "[CURSUS_SCHEMA_CHANGED] Topic 'events': column new bigint was added since the query "
        "began, and schemaEvolutionMode is fail. Start the query again to read it."
    )


def test_a_projection_does_not_mind_columns_that_it_does_not_want(store: Store) -> None:
    options = parse_stream_read_options(
        {"path": str(store.path), "subscribe": "events", "schemaEvolutionMode": "fail"}
    )
    columns = QueryColumns(options, struct("user string"), typed=True)
    columns.check(store, ["events"])
    store.alter_topic("events", add_columns=pa.schema([("new", pa.int64())]))
    columns.check(store, ["events"])


def test_a_topic_of_the_other_kind_appears_while_a_stream_runs(store: Store) -> None:
    columns = stream_columns(store)
    store.create_topic("records")
    with pytest.raises(CursusError, match="'records' is a records topic, but the query began with"):
        columns.check(store, ["records"])
