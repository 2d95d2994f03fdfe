"""The option ``where`` gives the rows that ``filter`` of Spark gives, whatever the statistics say.

Topics have small frames and segments, statistics of some are missing or damaged. Most reads go
through the data source without a JVM, because a property needs hundreds of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.read.log_slice import LogSlice
from storage_core import Store, StoreConfig
from storage_core.schema import statistics
from storage_core.schema.ddl import parse_ddl
from tests.cursus_spark.typed.test_where_as_in_spark import (
    BEYOND_64_BITS,
    every_value,
    found_by_spark,
)
from tests.support.sizes import examples
from tests.support.spark.dataframes import Log, one_line_error
from tests.support.stores import TOPIC, segments
from tests.support.typed import random_predicates
from tests.support.typed.random_predicates import Predicate, Row, arrays_of

HARM = ("none", "none", "missing", "damaged")


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("row", pa.array(range(len(table)), pa.int64()))


def fill(path: Path, table: pa.Table, harms: list[str], patch: pytest.MonkeyPatch) -> None:
    """Frames of 2 rows in segments of 4. ``harms`` are of the frames, then of the segments."""
    of_rows, count = statistics.of_rows, len(harms)
    written = iter(range(1 << 30))

    def harmed(rows: object) -> bytes:
        harm = harms[next(written) % count]
        found: bytes = of_rows(rows)  # type: ignore[arg-type]
        return {"none": found, "missing": b"", "damaged": found[:-3]}[harm]

    with patch.context() as inner, Store.open(path, create=True) as store:
        inner.setattr(statistics, "of_rows", harmed)
        store.create_topic(TOPIC, 2, schema=table.schema)
        for start in range(0, len(table), 2):
            partition = start // 8 % 2
            store.append_table(TOPIC, table.slice(start, 2), partition=partition)
            if start % 4 == 2:
                store.roll(TOPIC, partition)
    for partition in range(2):
        for number, file in enumerate(sorted(segments(path, partition).glob("*.stats"))):
            harm = harms[-1 - number % count]
            if harm == "missing":
                file.unlink()
            elif harm == "damaged":
                data = bytearray(file.read_bytes())
                data[-5] ^= 1
                file.write_bytes(data)


def found_by_source(path: Path, where: str) -> list[int]:
    """The rows of a read, as Spark plans and runs it."""
    source = CursusDataSource({"path": str(path), "subscribe": TOPIC, "where": where})
    reader = source.reader(source.schema())
    batches = (batch for task in reader.partitions() for batch in reader.read(task))
    return sorted(row for batch in batches for row in batch["row"].to_pylist())


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


@pytest.mark.slow
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(
    rows=random_predicates.rows(max_size=24),
    predicates=st.lists(random_predicates.predicates(), min_size=20, max_size=20),
    harms=st.lists(st.sampled_from(HARM), min_size=1, max_size=8),
)
def test_random_predicates_find_what_spark_finds(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    patch: pytest.MonkeyPatch,
    rows: list[Row],
    predicates: list[Predicate],
    harms: list[str],
) -> None:
    table = pa.table(arrays_of(rows), schema=random_predicates.SCHEMA)
    texts = [each.text for each in predicates if not BEYOND_64_BITS.search(each.text)]
    path = tmp_path_factory.mktemp("log")
    fill(path, numbered(table), harms, patch)
    masks = found_by_spark(spark.createDataFrame(table).coalesce(1), texts) if rows else []
    for text, mask in zip(texts, masks, strict=bool(rows)):
        wanted = [row for row, is_there in enumerate(mask) if is_there]
        assert found_by_source(path, text) == wanted, text


@pytest.mark.parametrize("harms", [["none"], ["missing"], ["damaged"]])
def test_load_gives_what_filter_gives(
    log: Log, patch: pytest.MonkeyPatch, harms: list[str]
) -> None:
    table = every_value().drop_columns(["local"])
    fill(log.path, numbered(table), harms, patch)
    texts = [
        "double = 'NaN' or real > 5 and big >= 0.5",
        "number < 2147483648 and tiny in (5, 127, 300)",
        "at between '2026-11-01' and '2026-11-02' or day < '1970-01-01'",
        "not (text > 'a' and raw <=> null) and took >= INTERVAL '0' DAY",
        "price <= 0.1 and exact is not null or nested.n = 7",
        "nothing is null and not flag",
    ]
    everything = log.read(TOPIC).cache()
    for text in texts:
        found, wanted = (
            sorted(row.row for row in frame.select("row").collect())
            for frame in (log.read(TOPIC, where=text), everything.filter(text))
        )
        assert found == wanted, text


def test_every_type_is_pruned_by_its_statistics(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """Statistics must be used, or the tests of this file compare nothing."""
    fill(tmp_path, numbered(every_value()), ["none"], patch)
    for where in ("row < 4", "row = 8 and text is not null", "big < 0 and row < 4"):
        source = CursusDataSource({"path": str(tmp_path), "subscribe": TOPIC, "where": where})
        (task,) = source.reader(source.schema()).partitions()
        assert isinstance(task, LogSlice)
        assert len(task.splits) == 1


def test_where_of_records_topics(log: Log) -> None:
    config = StoreConfig(frame_records=5)
    with log.store(create=True, config=config) as store:
        store.create_topic(TOPIC, 2)
        for number in range(40):
            store.append(TOPIC, number % 2, [b"v%d" % number], keys=[b"k%d" % (number % 4)])
            if number % 10 == 9:
                store.roll(TOPIC, 0)
    everything = log.read(TOPIC).selectExpr(
        "*", "partition _partition", "offset _offset", "timestamp _timestamp", "topic _topic"
    )
    for text in (
        "_partition = 1 and _offset >= 18",
        "key = 'k1' or key is null",
        "key > X'6b32' and offset < 3 and _topic = 't'",
        "_timestamp < '2000-01-01' or value = 'v7'",
        "timestamp > '2000-01-01' and _offset between 3 and 4",
    ):
        found, wanted = (
            sorted(row.value for row in frame.select("value").collect())
            for frame in (log.read(TOPIC, where=text), everything.filter(text))
        )
        assert found == wanted, text
        assert text.startswith("_timestamp") or found


def test_a_where_that_is_wrong_shows_its_place_at_load(log: Log) -> None:
    table = pa.table({"id": [1], "text": ["a"]})
    with log.store(create=True) as store:
        store.create_topic("typed", schema=table.schema)
        store.create_topic("other", schema=pa.table({"id": [1], "more": [1]}).schema)
        store.create_topic("records")
    assert one_line_error(lambda: log.read("typed", where="id > 1 and tex = 'a'")) == (
        "[CURSUS_PREDICATE_INVALID] where: there is no column tex; did you mean text?, at "
        "character 12: id > 1 and »tex« = 'a'"
    )
    for topic, where, place in (
        ("typed", "id >", "»"), ("typed", "upper(text) = 'A'", "upper"),
        ("records", "headers is null", "»headers«"), ("records", "id = 1", "»id«"),
        ("typed", "id = 'a'", "»'a'«"), ("typed", "", "where"),
    ):  # fmt: skip
        text = one_line_error(partial(log.read, topic, where=where))
        assert text.startswith("[CURSUS_PREDICATE_INVALID] where: ")
        assert place in text
    both = {"schema": "id long", "where": "more > 0"}
    assert one_line_error(lambda: log.read("typed,other", **both).count()) == (
        "[CURSUS_COLUMN_UNKNOWN] Column 'more' in where is not a column of topic 'typed'. Set "
        "mergeSchema to true to read it as null there."
    )
    assert log.read("typed,other", mergeSchema=True, **both).count() == 0


@pytest.mark.parametrize("where", ["amount > 1", "ctx.x = 1"])
def test_a_topic_without_a_column_of_the_where_is_not_left_out_in_silence(
    tmp_path: Path, where: str
) -> None:
    path, wanted = tmp_path / "log", StructType().add("id", LongType())
    table = pa.table({"id": [1], "amount": [2.0], "ctx": [{"x": 1}]})

    def ids(**options: str) -> list[int]:
        source = CursusDataSource({"path": str(path), "subscribePattern": ".*", **options})
        reader = source.reader(wanted)
        with Store.open(path) as store:  # the query is planned after it
            store.create_topic("later", schema=pa.table({"id": [2], "ctx": [{"y": 1}]}).schema)
            store.append_table("later", pa.table({"id": [2]}))
        batches = (batch for task in reader.partitions() for batch in reader.read(task))
        return [row for batch in batches for row in batch["id"].to_pylist()]

    with Store.open(path, create=True) as store:
        store.create_topic("first", schema=table.schema)
        store.append_table("first", table)
    name = where.split()[0]
    with pytest.raises(CursusError, match=f"'{name}' in where is not a column of topic 'later'"):
        ids(where=where)
    with Store.open(path) as store:
        store.delete_topic("later")
    assert ids(where=where, mergeSchema="true") == [1]


def test_texts_that_spark_does_not_compare_by_bytes_are_refused(tmp_path: Path) -> None:
    path, columns = (
        tmp_path / "log",
        "c STRING COLLATE UTF8_LCASE, s STRUCT<k: CHAR(5)>, v VARCHAR(5)",
    )
    with Store.open(path, create=True) as store:
        store.create_topic(TOPIC, schema=parse_ddl(columns))
        store.append_table(TOPIC, pa.table({"c": ["A"], "s": [{"k": "a"}], "v": ["a"]}))

    def count(where: str) -> int:
        source = CursusDataSource({"path": str(path), "subscribe": TOPIC, "where": where})
        reader = source.reader(source.schema())
        return sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))

    for where, name, kind in (
        ("c = 'a'", "c", "string collate UTF8_LCASE"), ("v = 'a' or c in ('b')", "c", "string col"),
        ("v = c", "c", "string collate"), ("s.k > 'a'", "s.k", r"char\(5\)"),
    ):  # fmt: skip
        with pytest.raises(CursusError, match=f"COLUMN_TYPE. Column '{name}' in where .* {kind}"):
            count(where)
    assert count("c is not null and s.k is not null and v = 'a'") == 1
