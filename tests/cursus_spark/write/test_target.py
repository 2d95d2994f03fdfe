"""Which kind of topic the rows of a write go to, and rows that the driver refuses for a topic.

The data source is called as Spark calls it, without a session: all this happens on the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.datasource import WriterCommitMessage

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.schema import read_schema
from cursus_spark.write.writer import CursusWriter
from storage_core import Store

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("count", pa.int32()),
        pa.field("ctx", pa.struct([pa.field("a b", pa.int32()), pa.field("c", pa.string())])),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


def rows(**columns: str | t.DataType) -> t.StructType:
    made = t.StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


def writer(path: Path, schema: t.StructType, **options: Any) -> CursusWriter:
    given = {"path": str(path), "topic": "events", **options}
    return CursusDataSource({k: v for k, v in given.items() if v is not None}).writer(schema, False)


def refusal(path: Path, schema: t.StructType, **options: Any) -> str:
    """The error of a batch writer, which a stream writer has too; nothing is staged."""
    given = {"path": str(path), "topic": "events", **options}
    source = CursusDataSource({k: v for k, v in given.items() if v is not None})
    texts = set()
    for make in (source.writer, source.streamWriter):
        with pytest.raises(CursusError) as caught:
            make(schema, False)
        texts.add(str(caught.value))
    assert not list(path.glob("staging/*"))
    (text,) = texts
    assert "\n" not in text
    return text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def events(path: Path) -> Path:
    """A store with a typed topic and one of records."""
    with Store.open(path, create=True) as store:
        store.create_topic("events", 2, schema=EVENTS, key_columns=["user"], timestamp_column="at")
        store.create_topic("records")
    return path


@pytest.mark.parametrize(
    ("schema", "options", "typed"),
    [
        (rows(value="string"), {}, False),
        (rows(value="binary", key="string"), {}, False),
        (rows(value=t.StringType("UNICODE_CI")), {}, False),
        (read_schema(include_headers=True), {}, False),
        (rows(value="string"), {"typed": "true"}, True),
        (rows(value="string"), {"typed": "false"}, False),
        (rows(value="integer"), {}, True),
        (rows(value=t.NullType()), {}, True),
        (rows(Value="string"), {}, True),
        (rows(key="string", timestamp="timestamp"), {}, True),
        (rows(value="string", id="long"), {}, True),
        (rows(id="long", topic="string"), {}, True),
    ],
)
def test_a_new_topic_is_typed_if_kafkas_sink_would_not_take_the_rows(
    path: Path, schema: t.StructType, options: dict[str, str], typed: bool
) -> None:
    writer(path, schema, **options)
    with Store.open(path) as store:
        assert store.topic("events").is_typed == typed
        found = store.schema("events")
        assert (found is not None) == typed
        if found is not None:
            assert list(found.names) == schema.fieldNames()


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (
            rows(id="long", topic="string"),
            {"topic": None},
            "[CURSUS_TOPIC_REQUIRED] topic option required for rows of your own columns, which go "
            "to one typed topic: id, topic. The column 'topic' does not choose one: it is a column "
            'like any other there. Use .option("topic", "...").',
        ),
        (
            rows(value="string"),
            {"topic": None, "typed": "true"},
            "[CURSUS_TOPIC_REQUIRED] topic option required for rows of your own columns, which go "
            'to one typed topic: value. Use .option("topic", "...").',
        ),
        (
            rows(value="string", topic="string"),
            {"topic": None, "keyColumns": "value"},
            "[CURSUS_TOPIC_DIFFERS] Topic of the column 'topic' has records, with key and value, "
            "but keyColumns is given, which only typed topics have.",
        ),
        (
            rows(id="long"),
            {"typed": "false"},
            "[CURSUS_VALUE_MISSING] Required attribute 'value' not found. Columns: id.",
        ),
        (
            rows(value="string", key="integer"),
            {},
            "[CURSUS_COLUMN_TYPE] key attribute unsupported type int.",
        ),
        (
            rows(value="string"),
            {"timestampColumn": "value"},
            "[CURSUS_TOPIC_DIFFERS] Topic 'events' has records, with key and value, but "
            "timestampColumn is given, which only typed topics have. Remove it, or set typed to "
            "true for a new topic.",
        ),
        (
            rows(id="long", span=t.YearMonthIntervalType()),
            {},
            "[CURSUS_TYPE_UNSUPPORTED] Column 'span' has type interval year to month, which a "
            "topic can't store.",
        ),
        (
            rows(id="long", ID="long"),
            {},
            "[CURSUS_COLUMN_DUPLICATE] Columns 'id' and 'ID' in the rows to write differ only in "
            "case.",
        ),
        (
            rows(id="long", _Offset="long"),
            {},
            "[CURSUS_SCHEMA_INVALID] column _Offset: the names _topic, _partition, _offset, "
            "_timestamp are reserved, in any case. Rename the column.",
        ),
        (
            rows(id="long", user="string"),
            {"keyColumns": "id, usr"},
            "[CURSUS_OPTION_INVALID] Option 'keyColumns' names 'usr', which is not a column of the "
            "rows. Columns: id, user.",
        ),
        (
            rows(id="long"),
            {"timestampColumn": "ID"},
            "[CURSUS_OPTION_INVALID] Option 'timestampColumn' names 'ID' of type bigint, it must "
            "be a timestamp.",
        ),
        (
            rows(id="long"),
            {"keyColumns": "id,"},
            "[CURSUS_OPTION_INVALID] Option 'keyColumns' must be names of columns, separated by "
            "commas, got 'id,'.",
        ),
        (
            rows(id="long"),
            {"mergeSchema.typeWidening": "true"},
            "[CURSUS_OPTION_MISSING] Option 'mergeSchema' must be true with "
            "'mergeSchema.typeWidening' true.",
        ),
        (t.StructType(), {}, "[CURSUS_SCHEMA_EMPTY] The rows to write have no column."),
        (
            rows(id="long"),
            {"createTopic": "false"},
            "[CURSUS_LAYOUT_NOT_FOUND] ",
        ),
    ],
)
def test_what_cannot_be_a_new_topic_makes_no_store(
    path: Path, schema: t.StructType, options: dict[str, Any], message: str
) -> None:
    assert refusal(path, schema, **options).startswith(message)
    assert not path.exists()


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_directories_of_brokers_have_no_typed_topics(path: Path, layout: str) -> None:
    assert refusal(path, rows(id="long"), layout=layout) == (
        f"[CURSUS_SCHEMA_MISMATCH] layout {layout} stores keys and values, not columns, so topic "
        "'events' cannot be a typed topic. Use a native store."
    )


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (rows(value="string"), {}, "column value: found string, but the topic has no such column."),
        (rows(user="string"), {}, "column id: found no such column, wanted bigint NOT NULL. Add"),
        (
            rows(id="long", usr="string"),
            {},
            "column usr: found string, but the topic has no such column. Drop the column, or set "
            "mergeSchema=true to add it.",
        ),
        (
            rows(id="long", count="long"),
            {},
            "column count: found bigint, wanted int. Cast it, or set mergeSchema=true and "
            "mergeSchema.typeWidening=true.",
        ),
        (
            rows(id="long", count="long"),
            {"mergeSchema": "true"},
            "column count: found bigint, wanted int. Cast it, or set mergeSchema=true and",
        ),
        (
            rows(id="long", user="integer"),
            {"mergeSchema": "true", "mergeSchema.typeWidening": "true"},
            "column user: found int, wanted string. Cast it.",
        ),
        (
            rows(id="long", ctx=t.StructType().add("a b", "string")),
            {},
            "column ctx.`a b`: found string, wanted int. Cast it.",
        ),
    ],
)
def test_rows_that_do_not_fit_a_typed_topic_are_refused_before_any_task(
    events: Path, schema: t.StructType, options: dict[str, str], message: str
) -> None:
    assert refusal(events, schema, **options).startswith(
        f"[CURSUS_SCHEMA_MISMATCH] topic 'events', {message}"
    )
    with Store.open(events) as store:
        assert [found.schema.version for found in store.schema_versions("events")] == [1]


def test_variants_and_intervals_are_distinguished_though_arrow_does_not(path: Path) -> None:
    inside = t.StructType().add("value", "binary", False).add("metadata", "binary", False)
    day = t.DayTimeIntervalType(0, 0)
    stored = t.StructType().add("v", t.VariantType()).add("s", inside).add("d", t.ArrayType(day))
    writer(path, stored)
    writer(path, stored.add("more", "integer"), mergeSchema="true")
    for schema, message in (
        (rows(v=inside), "column v: found struct<value:binary,metadata:binary>, wanted variant."),
        (rows(s=t.VariantType()), "column s: found variant, wanted struct<value:binary,metadata:"),
        (
            rows(d=t.ArrayType(t.DayTimeIntervalType())),
            "column d.element: found interval day to second, wanted interval day. Cast it.",
        ),
    ):
        assert refusal(path, schema).startswith(
            f"[CURSUS_SCHEMA_MISMATCH] topic 'events', {message}"
        )


@pytest.mark.parametrize(
    ("topic", "options", "message"),
    [
        ("events", {"typed": "false"}, "is a typed topic, but typed is false."),
        ("events", {"keyColumns": "id"}, "has key columns user, but keyColumns is id. A topic"),
        ("events", {"keyColumns": "user,id"}, "has key columns user, but keyColumns is user, id."),
        ("events", {"timestampColumn": "id"}, "has timestamp column at, but timestampColumn is id"),
        ("records", {"typed": "true"}, "is a records topic, but typed is true. A topic keeps what"),
        ("records", {"keyColumns": "id"}, "has records, with key and value, but keyColumns is"),
    ],
)
def test_a_topic_keeps_its_kind_its_key_and_its_time(
    events: Path, topic: str, options: dict[str, str], message: str
) -> None:
    found = refusal(events, rows(id="long"), topic=topic, **options)
    assert found.startswith(f"[CURSUS_TOPIC_DIFFERS] Topic '{topic}' {message}")


def test_what_a_topic_has_may_be_given_again_in_any_case(events: Path) -> None:
    same = {"keyColumns": " USER ", "timestampColumn": "`At`", "typed": "true"}
    writer(events, rows(ID="long", COUNT="integer"), numPartitions="2", **same)
    assert "PARTITION_COUNT" in refusal(events, rows(id="long"), numPartitions="3")
    one = refusal(events, rows(value="string"), topic="records", numPartitions="3")
    assert one.startswith("[CURSUS_PARTITION_COUNT] Topic 'records' has 1 partition, but num")


def test_an_existing_topic_of_records_takes_what_it_always_took(events: Path) -> None:
    writer(events, rows(value="string", key="binary"), topic="records", mergeSchema="true")
    for schema, condition in (
        (rows(id="long"), "VALUE_MISSING"),
        (rows(value="integer"), "COLUMN_TYPE"),
        (rows(value="string", id="long"), "COLUMN_UNKNOWN"),
    ):
        assert condition in refusal(events, schema, topic="records")


def test_rows_that_name_a_typed_topic_are_refused_by_the_task(events: Path) -> None:
    schema = rows(value="string", topic="string")
    task = writer(events, schema, topic=None)
    with pytest.raises(CursusError, match=r"TOPIC_DIFFERS\] Topic 'events' is a typed topic, and"):
        task.write(iter([pa.record_batch({"value": ["v"], "topic": ["events"]})]))


def test_names_of_key_columns_may_have_commas_dots_and_backticks(path: Path) -> None:
    names = ["a,b", "c.d", " e ", "f`g", "größe (cm)"]
    schema = t.StructType([t.StructField(name, t.StringType()) for name in names])
    writer(path, schema, keyColumns="`a,b`, c.d,` e `,`f``g`,größe (cm)", numPartitions="2")
    with Store.open(path) as store:
        assert store.topic("events").key_columns == tuple(names)


def test_a_key_that_cannot_be_compared_makes_no_topic(path: Path) -> None:
    schema = rows(m=t.MapType(t.StringType(), t.StringType()), id="long")
    assert refusal(path, schema, keyColumns="m").startswith(
        "[CURSUS_SCHEMA_INVALID] key column m: found type map<string,string>, whose "
        "values cannot be compared."
    )
    with Store.open(path) as store:
        assert store.topics() == []


def test_a_damaged_topic_is_not_taken_for_a_missing_one(events: Path) -> None:
    (events / "topics/events/topic.json").write_bytes(b"{")
    assert "DAMAGED" in refusal(events, rows(id="long"))


def test_writers_that_add_different_columns_at_once_lose_nothing(events: Path) -> None:
    merging = {"mergeSchema": "true", "mergeSchema.typeWidening": "true"}
    one = writer(events, rows(id="long", left="integer"), **merging)
    two = writer(events, rows(id="long", right="string", count="long"), **merging)
    same = writer(events, rows(id="long", left="integer"), **merging)
    staged = [
        one.write(iter([pa.record_batch({"id": [1], "left": pa.array([10], pa.int32())})])),
        two.write(iter([pa.record_batch({"id": [2], "right": ["b"], "count": [1 << 40]})])),
        same.write(iter([pa.record_batch({"id": [3], "left": pa.array([30], pa.int32())})])),
    ]
    with Store.open(events) as store:
        assert store.schema("events").version == 1  # type: ignore[union-attr]
    two.commit([staged[1]])
    one.commit([staged[0]])
    same.commit([staged[2]])
    with Store.open(events) as store:
        table = store.scan("events", columns=["id", "left", "right", "count"]).to_table()
    assert sorted(map(tuple, (row.values() for row in table.to_pylist()))) == [
        (1, 10, None, None),
        (2, None, "b", 1 << 40),
        (3, 30, None, None),
    ]
    assert table.schema.field("count").type == pa.int64()


def test_one_name_with_two_types_at_once_is_refused_and_nothing_is_added(events: Path) -> None:
    one = writer(events, rows(id="long", new="integer"), mergeSchema="true")
    two = writer(events, rows(id="long", new="string"), mergeSchema="true")
    first = one.write(iter([pa.record_batch({"id": [1], "new": pa.array([10], pa.int32())})]))
    second = two.write(iter([pa.record_batch({"id": [2], "new": ["b"]})]))
    one.commit([first])
    with pytest.raises(
        CursusError, match=r"SCHEMA_MISMATCH\] topic 'events', column new: found string"
    ):
        two.commit([second])
    two.abort([second])
    with Store.open(events) as store:
        assert store.scan("events", columns=["id", "new"]).to_table().to_pylist() == [
            {"id": 1, "new": 10}
        ]
    assert not list(events.glob("staging/*"))
    assert "wanted int" in refusal(events, rows(id="long", new="string"), mergeSchema="true")


def test_new_columns_of_a_write_that_is_not_committed_are_never_seen(events: Path) -> None:
    job = writer(events, rows(id="long", new="integer"), mergeSchema="true")
    staged = job.write(iter([pa.record_batch({"id": [1], "new": pa.array([10], pa.int32())})]))
    job.abort([staged])
    with Store.open(events) as store:
        assert list(store.schema("events").names) == EVENTS.names  # type: ignore[union-attr]
        assert store.scan("events").to_table().num_rows == 0


@pytest.mark.parametrize("row", [0, 1])
def test_a_null_in_a_not_null_column_is_refused_by_the_task(events: Path, row: int) -> None:
    job = writer(events, rows(id="long", user="string"))
    numbers = [7, 7]
    numbers[row] = None  # type: ignore[call-overload]
    with pytest.raises(CursusError) as caught:
        job.write(iter([pa.record_batch({"id": pa.array(numbers, pa.int64())})]))
    assert str(caught.value) == (
        f"[CURSUS_SCHEMA_MISMATCH] topic 'events', column id: found a null in row {row}, wanted "
        "bigint NOT NULL. Fill or drop the nulls."
    )


def test_rows_of_a_topic_that_was_created_again_are_refused(events: Path) -> None:
    job = writer(events, rows(id="long"))
    with Store.open(events) as store:
        store.delete_topic("events")
        store.create_topic("events", schema=pa.schema([pa.field("other", pa.int64())]))
    with pytest.raises(CursusError, match=r"SCHEMA_MISMATCH\] topic 'events' has other columns"):
        job.write(iter([pa.record_batch({"id": [1]})]))


@pytest.mark.parametrize("staged", [False, True], ids=["before tasks", "before the commit"])
def test_rows_routed_for_a_deleted_topic_do_not_enter_the_new_one(path: Path, staged: bool) -> None:
    """Both have the same columns, but another key: equal keys would go to different partitions."""
    columns = pa.schema([("user", pa.string()), ("id", pa.int64())])
    batch = pa.record_batch([["a", "b"], [1, 2]], schema=columns)
    with Store.open(path, create=True) as store:
        store.create_topic("events", 2, schema=columns, key_columns=["user"])
        job = writer(path, rows(user="string", id="long"))
        messages: list[WriterCommitMessage | None] = []
        messages += [job.write(iter([batch]))] if staged else []
        store.delete_topic("events")
        store.create_topic("events", 2, schema=columns, key_columns=["id"])
        with pytest.raises(CursusError, match="deleted and created again"):
            job.commit(messages) if staged else job.write(iter([batch]))
        assert store.scan("events").to_table().num_rows == 0
