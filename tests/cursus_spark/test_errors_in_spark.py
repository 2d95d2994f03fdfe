"""Every error a user can cause, as Spark shows it: one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from cursus_spark.options.table import OPTIONS, options_for
from tests.support.spark.dataframes import TOPIC, Log, one_line_error
from tests.support.stores import T0

pytestmark = pytest.mark.matrix

_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES = '{"topicA":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}'
_TIME = "milliseconds since 1970 or an ISO-8601 time such as 2026-01-01T00:00:00Z"


def invalid(option: str, words: str, text: str) -> tuple[str, str]:
    return text, f"[CURSUS_OPTION_INVALID] Option '{option}' must be {words}, got '{text}'."


def offsets(option: str, text: str) -> tuple[str, str]:
    expected = f"expected earliest, latest or JSON such as {_EXAMPLE}"
    return text, f"[CURSUS_OFFSETS_INVALID] Option '{option}': {expected}, got '{text}'."


def times(option: str, text: str) -> tuple[str, str]:
    expected = f"expected JSON such as {_TIMES}"
    return text, f"[CURSUS_OFFSETS_INVALID] Option '{option}': {expected}, got '{text}'."


READ = {
    "path": invalid("path", "a directory of a mounted file system", "hdfs://host/log"),
    "layout": invalid(
        "layout", "one of auto, native, cursus, cursus-broker, rustlog, objects, kafka", "pulsar"
    ),
    "topic": (
        "a",
        "[CURSUS_OPTION_CONFLICT] Only one of the following options can be specified for the "
        "cursus source: subscribe, subscribePattern, assign. Given: topic, subscribe.",
    ),
    "subscribe": (
        " , ",
        "[CURSUS_OPTION_INVALID] No topics to subscribe to as specified value for option "
        "'subscribe' is ' , '.",
    ),
    "subscribePattern": (
        "a",
        "[CURSUS_OPTION_CONFLICT] Only one of the following options can be specified for the "
        "cursus source: subscribe, subscribePattern, assign. Given: subscribe, subscribePattern.",
    ),
    "assign": (
        "{}",
        "[CURSUS_OPTION_CONFLICT] Only one of the following options can be specified for the "
        "cursus source: subscribe, subscribePattern, assign. Given: subscribe, assign.",
    ),
    "startingOffsets": offsets("startingOffsets", "first"),
    "startingTimestamp": invalid("startingTimestamp", _TIME, "yesterday"),
    "startingOffsetsByTimestamp": times("startingOffsetsByTimestamp", "[1]"),
    "startingOffsetsByTimestampStrategy": invalid(
        "startingOffsetsByTimestampStrategy", "one of error, latest", "earliest"
    ),
    "endingOffsets": offsets("endingOffsets", '{"orders":1}'),
    "endingTimestamp": (
        "-5",
        "[CURSUS_OPTION_INVALID] Option 'endingTimestamp': '-5' is not a time in milliseconds from "
        "1970 to 9999.",
    ),
    "endingOffsetsByTimestamp": times("endingOffsetsByTimestamp", "latest"),
    "timestampMode": invalid("timestampMode", "one of exact, offsets", "fuzzy"),
    "failOnDataLoss": invalid("failOnDataLoss", "true or false", "no"),
    "isolation": invalid(
        "isolation", "one of read_committed, read_uncommitted, log_end", "serializable"
    ),
    "includeHeaders": invalid("includeHeaders", "true or false", "yes"),
    "includeMetadata": invalid("includeMetadata", "true or false", "all"),
    "mergeSchema": invalid("mergeSchema", "true or false", "all"),
    "where": (
        "partition = 0",
        "[CURSUS_PREDICATE_INVALID] where: there is no column partition; did you mean _partition?, "
        "at character 1: »partition« = 0",
    ),
    "minPartitions": invalid("minPartitions", "a positive integer", "-1"),
    "maxRecordsPerPartition": invalid("maxRecordsPerPartition", "a positive integer", "0"),
    "maxBytesPerPartition": invalid("maxBytesPerPartition", "a positive size such as 128m", "1x"),
    "cacheDir": invalid(
        "cacheDir", "the absolute path of a local directory, such as /var/cache/log", "cache"
    ),
    "cacheBytes": invalid("cacheBytes", "a positive size such as 128m", "x"),
}
WRITE = {
    "path": READ["path"],
    "layout": READ["layout"],
    "topic": invalid("topic", "a name", " "),
    "partitioner": invalid("partitioner", "murmur2", "random"),
    "createTopic": invalid("createTopic", "true or false", "1"),
    "numPartitions": invalid("numPartitions", "a positive integer", "0"),
    "typed": invalid("typed", "true or false", "1"),
    "keyColumns": invalid("keyColumns", "names of columns, separated by commas", "a,,b"),
    "timestampColumn": invalid("timestampColumn", "the name of one column", "a,b"),
    "mergeSchema": READ["mergeSchema"],
    "mergeSchema.typeWidening": invalid("mergeSchema.typeWidening", "true or false", "yes"),
    "compression": invalid("compression", "one of none, lz4, zstd", "snappy"),
    "txnAppId": (
        "app",
        "[CURSUS_OPTION_MISSING] Option 'txnVersion' must be specified with 'txnAppId': give both "
        "or neither.",
    ),
    "txnVersion": (
        "1",
        "[CURSUS_OPTION_MISSING] Option 'txnAppId' must be specified with 'txnVersion': give both "
        "or neither.",
    ),
    "txnMode": (
        "exact",
        "[CURSUS_OPTION_MISSING] Options 'txnAppId' and 'txnVersion' must be specified with "
        "'txnMode'.",
    ),
}


def test_the_cases_cover_every_option_of_the_table() -> None:
    assert [option.name for option in options_for("read")] == list(READ)
    assert {option.name for option in options_for("write")} == set(WRITE)
    streaming = {option.name for option in OPTIONS} - set(READ) - set(WRITE)
    streaming -= {"consumerGroup", "inlineBatchBytes", "schemaEvolutionMode"}
    assert all("Trigger" in name for name in streaming)


@pytest.fixture
def filled(log: Log) -> Log:
    log.create(2).append(TOPIC, 0, [b"a", b"b"], timestamps=[T0, T0 + 1])
    return log


@pytest.mark.parametrize("option", READ)
def test_every_option_of_a_read_says_what_it_takes(filled: Log, option: str) -> None:
    text, expected = READ[option]
    options = {"subscribe": TOPIC, "path": str(filled.path), option: text}
    reader = filled.spark.read.format("cursus").options(**options)
    assert one_line_error(lambda: reader.load().collect()) == expected


@pytest.mark.parametrize("option", WRITE)
def test_every_option_of_a_write_says_what_it_takes(filled: Log, option: str) -> None:
    text, expected = WRITE[option]
    options = {"topic": TOPIC, "path": str(filled.path), option: text}
    writer = filled.values("v").write.format("cursus").options(**options).mode("append")
    assert one_line_error(writer.save) == expected
    assert filled.texts() == ["a", "b"]


READS: dict[str, tuple[dict[str, Any], str]] = {
    "no topic": (
        {},
        "[CURSUS_OPTION_MISSING] One of the following options must be specified for the cursus "
        "source: subscribe, subscribePattern, assign. For a catalog table add WITH (subscribe = "
        "'...').",
    ),
    "a typing error, which Spark hands over in lower case": (
        {"subscribe": TOPIC, "startingOffset": "earliest"},
        "[CURSUS_OPTION_UNKNOWN] Unknown option 'startingoffset'. Did you mean 'startingOffsets'?",
    ),
    "a broker's address": (
        {"subscribe": TOPIC, "kafka.bootstrap.servers": "host:9092"},
        "[CURSUS_OPTION_UNKNOWN] Unknown option 'kafka.bootstrap.servers'. There is no broker: set "
        "'path' to the directory of the log.",
    ),
    "a start at the end": (
        {"subscribe": TOPIC, "startingOffsets": '{"orders":{"0":-1}}'},
        "[CURSUS_START_LATEST_IN_BATCH] startingOffsets for orders-0 can't be latest in a batch "
        "query. Use earliest, an offset, or readStream.",
    ),
    "an end at the start": (
        {"subscribe": TOPIC, "endingOffsets": "earliest"},
        "[CURSUS_END_EARLIEST_IN_BATCH] endingOffsets can't be earliest in a batch query. Use "
        "latest or an offset.",
    ),
    "a start after the end": (
        {
            "subscribe": TOPIC,
            "startingOffsets": '{"orders":{"0":2}}',
            "endingOffsets": '{"orders":{"0":1}}',
        },
        "[CURSUS_OFFSETS_INVALID] startingOffsets for orders-0 is 2, after endingOffsets, which "
        "is 1. Set a start before the end.",
    ),
    "a partition that is not read": (
        {"subscribe": TOPIC, "startingOffsets": '{"orders":{"9":2}}'},
        "[CURSUS_OFFSETS_INVALID] Option 'startingOffsets' names orders-9, which the query does "
        "not read.",
    ),
    "a topic that is not read": (
        {"subscribe": TOPIC, "endingOffsets": '{"users":{"0":2}}'},
        "[CURSUS_OFFSETS_INVALID] Option 'endingOffsets' names topic 'users', which the query does "
        "not read. Topics read: orders.",
    ),
    "no such topic": (
        {"subscribe": "users"},
        "[CURSUS_TOPIC_NOT_FOUND] Topic 'users' does not exist in {path}. Topics found: orders.",
    ),
    "no record that recent": (
        {"subscribe": TOPIC, "startingTimestamp": "2999-01-01T00:00:00Z"},
        "[CURSUS_NO_OFFSET_FOR_TIMESTAMP] No record in orders-0 at or after 2999-01-01T00:00:00Z. "
        "Set startingOffsetsByTimestampStrategy to 'latest' to start at the end.",
    ),
    "an offset past the end": (
        {"subscribe": TOPIC, "startingOffsets": '{"orders":{"0":7}}'},
        "[CURSUS_DATA_LOSS] orders-0: offset 7 is past the end of the log (2). Records may have "
        "been lost. Set failOnDataLoss to false to continue from 2.",
    ),
}


@pytest.mark.parametrize("case", READS)
def test_every_error_of_a_read_is_one_line(filled: Log, case: str) -> None:
    options, expected = READS[case]
    found = one_line_error(lambda: filled.read(None, **options).collect())
    assert found == expected.replace("{path}", str(filled.path))


def test_a_read_without_a_path_says_so(filled: Log) -> None:
    found = one_line_error(lambda: filled.reader().load().collect())
    assert found.startswith("[CURSUS_OPTION_MISSING] Option 'path' must be specified")


def test_a_column_that_does_not_exist_is_answered_with_those_that_do(filled: Log) -> None:
    found = one_line_error(lambda: filled.read(schema="foo string").collect())
    assert found == (
        "[CURSUS_COLUMN_UNKNOWN] Column 'foo' in .schema(...) is not a cursus column. Available: "
        "key, value, topic, partition, offset, timestamp, timestampType, headers."
    )
    wrong = one_line_error(lambda: filled.read(schema="offset string").collect())
    assert wrong == (
        "[CURSUS_COLUMN_TYPE] Column 'offset' in .schema(...): unsupported type string. offset "
        "must be a bigint."
    )


WRITES: dict[str, tuple[Callable[[Log], object], str]] = {
    "no value": (
        lambda log: log.write(log.frame([(1, "x")], "id int, name string")),
        "[CURSUS_VALUE_MISSING] Required attribute 'value' not found. Columns: id, name. Use "
        'selectExpr("to_json(struct(*)) AS value"), or write the columns as they are to a new, '
        "typed topic.",
    ),
    "a value that is a number": (
        lambda log: log.write(log.frame([(1,)], "value int")),
        "[CURSUS_COLUMN_TYPE] value attribute unsupported type int. value must be a string or "
        "binary.",
    ),
    "a column too many": (
        lambda log: log.write(log.frame([("v", 1)], "value string, id int")),
        "[CURSUS_COLUMN_UNKNOWN] Column 'id' can't be written to a records topic. Writable: key, "
        'value, topic, partition, timestamp, headers. Use selectExpr("to_json(struct(*)) AS '
        'value"), or write the columns as they are to a new, typed topic.',
    ),
    "no topic": (
        lambda log: log.write(log.values("v"), None),
        "[CURSUS_TOPIC_REQUIRED] topic option required when no 'topic' attribute is present. Use "
        '.option("topic", "..."). (Options given in CREATE TABLE do not reach INSERT; use INSERT '
        "INTO t WITH (path = '...', topic = '...').)",
    ),
    "a null topic": (
        lambda log: log.write(log.frame([("v", None)], "value string, topic string"), None),
        "[CURSUS_TOPIC_NULL] null topic present in the data. Fill the 'topic' column, or use "
        '.option("topic", "...").',
    ),
    "a topic that may not be made": (
        lambda log: log.write(log.values("v"), "users", createTopic="false"),
        "[CURSUS_TOPIC_NOT_FOUND] Topic 'users' does not exist in {path}. Topics found: orders. "
        "Create it, or set createTopic to true.",
    ),
    "another number of partitions": (
        lambda log: log.write(log.values("v"), numPartitions=3),
        "[CURSUS_PARTITION_COUNT] Topic 'orders' has 2 partitions, but numPartitions is 3. "
        "Remove the option, or add partitions to the topic.",
    ),
    "a partition that is not there": (
        lambda log: log.write(log.frame([("v", 2)], "value string, partition int")),
        "[CURSUS_PARTITION_NOT_FOUND] partition attribute 2: topic 'orders' has partitions 0 to 1. "
        "Correct the column, or add partitions.",
    ),
    "overwrite": (
        lambda log: log.values("v").write.format("cursus").option("topic", TOPIC)
        .mode("overwrite").save(str(log.path)),
        "[CURSUS_APPEND_ONLY] Overwrite is not supported: a cursus topic is append-only. Use "
        '.mode("append").',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITES)
def test_every_error_of_a_write_is_one_line_and_adds_nothing(filled: Log, case: str) -> None:
    action, expected = WRITES[case]
    found = one_line_error(lambda: action(filled))
    assert found == expected.replace("{path}", str(filled.path))
    assert filled.texts() == ["a", "b"]
    assert not (filled.path / "staging").exists() or not list((filled.path / "staging").iterdir())


@pytest.mark.parametrize("topic", ["ünïcode", "a/b", "..", "a b"])
def test_topics_that_cannot_be_directories_are_refused(filled: Log, topic: str) -> None:
    found = one_line_error(lambda: filled.write(filled.values("v"), topic))
    assert found.startswith("[CURSUS_NAME_INVALID] topic")
    rows = filled.frame([("v", topic)], "value string, topic string")
    assert one_line_error(lambda: filled.write(rows, None)).startswith("[CURSUS_NAME_INVALID]")


def test_a_write_needs_its_mode(filled: Log) -> None:
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        filled.values("v").write.format("cursus").option("topic", TOPIC).save(str(filled.path))
