"""Every option with good and bad values, and the exact texts of the errors."""

from __future__ import annotations

from typing import Any

import pytest

from cursus_spark.options import parse as o
from cursus_spark.options.table import BY_LOWER_NAME, OPTIONS, options_for
from tests.support.parsed_options import message, read, stream, write

GOOD = [
    (read, "layout", "Cursus-Broker", "layout", "cursus-broker"),
    (read, "isolation", "read_uncommitted", "isolation", "read_uncommitted"),
    (read, "startingOffsetsByTimestampStrategy", "latest", "by_timestamp_strategy", "latest"),
    (read, "timestampMode", "Offsets", "timestamp_mode", "offsets"),
    (stream, "timestampMode", "offsets", "timestamp_mode", "offsets"),
    (read, "failOnDataLoss", "False", "fail_on_data_loss", False),
    (read, "includeHeaders", "true", "include_headers", True),
    (read, "minPartitions", " 8 ", "min_partitions", 8),
    (read, "maxRecordsPerPartition", "9223372036854775807", "max_records_per_partition", 2**63 - 1),
    (read, "maxBytesPerPartition", "1g", "max_bytes_per_partition", 1 << 30),
    (read, "maxBytesPerPartition", "64 KB", "max_bytes_per_partition", 1 << 16),
    (read, "maxBytesPerPartition", "2MiB", "max_bytes_per_partition", 2 << 20),
    (read, "maxBytesPerPartition", "100b", "max_bytes_per_partition", 100),
    (read, "cacheDir", " /var/cache/log ", "cache_dir", "/var/cache/log"),
    (read, "cacheDir", "file:///var/cache/log", "cache_dir", "/var/cache/log"),
    (stream, "cacheBytes", "10g", "cache_bytes", 10 << 30),
    (stream, "maxOffsetsPerTrigger", "10", "max_offsets_per_trigger", 10),
    (stream, "maxBytesPerTrigger", "1t", "max_bytes_per_trigger", 1 << 40),
    (stream, "minOffsetsPerTrigger", "5", "min_offsets_per_trigger", 5),
    (stream, "inlineBatchBytes", "0", "inline_batch_bytes", 0),
    (stream, "inlineBatchBytes", "64m", "inline_batch_bytes", 64 << 20),
    (stream, "maxTriggerDelay", "500ms", "max_trigger_delay_ms", 500),
    (stream, "maxTriggerDelay", "2h", "max_trigger_delay_ms", 7_200_000),
    (stream, "maxTriggerDelay", "10 min", "max_trigger_delay_ms", 600_000),
    (stream, "maxTriggerDelay", "90s", "max_trigger_delay_ms", 90_000),
    (stream, "maxTriggerDelay", "1d", "max_trigger_delay_ms", 86_400_000),
    (stream, "maxTriggerDelay", "250", "max_trigger_delay_ms", 250),
    (stream, "consumerGroup", "dashboard", "consumer_group", "dashboard"),
    (write, "createTopic", "false", "create_topic", False),
    (write, "numPartitions", "12", "num_partitions", 12),
    (stream, "maxTriggerDelay", "2w", "max_trigger_delay_ms", 14 * 86_400_000),
    (stream, "maxTriggerDelay", "7d", "max_trigger_delay_ms", 7 * 86_400_000),
    (read, "maxBytesPerPartition", "64MiB", "max_bytes_per_partition", 64 << 20),
    (write, "compression", "zstd", "compression", "zstd"),
    (read, "includeMetadata", "true", "include_metadata", True),
    (stream, "mergeSchema", "true", "merge_schema", True),
    (stream, "where", "id > 5", "where", "id > 5"),
    (stream, "schemaEvolutionMode", "Fail", "schema_evolution_mode", "fail"),
    (write, "mergeSchema", "true", "merge_schema", True),
    (write, "typed", "False", "typed", False),
    (write, "keyColumns", " a b ,`c``,`,d.e", "key_columns", ("a b", "c`,", "d.e")),
    (write, "timestampColumn", " at ", "timestamp_column", "at"),
]


@pytest.mark.parametrize(("parse", "name", "text", "field", "value"), GOOD)
@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_good_values(
    parse: Any, name: str, text: str, field: str, value: object, spell: Any
) -> None:
    assert getattr(parse(**{spell(name): text}), field) == value


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_the_one_partitioner_may_be_named(spell: Any) -> None:
    assert write(**{spell("partitioner"): "murmur2"}) == write()


POSITIVE = "a positive integer"
SIZE = "a positive size such as 128m"
DIRECTORY = "the absolute path of a local directory, such as /var/cache/log"
SPAN = "a positive duration such as 15m or 500ms"
NAMES = "names of columns, separated by commas"
LAYOUTS = "one of auto, native, cursus, cursus-broker, rustlog, objects, kafka"
ISOLATION = "one of read_committed, read_uncommitted, log_end"
BAD = [
    (read, "minPartitions", ["-1", "0", "1.5", "x", "", "2147483648", "١"], POSITIVE),
    (read, "maxRecordsPerPartition", ["0", "9223372036854775808", "1e3"], POSITIVE),
    (read, "cacheDir", ["cache", "", "s3://bucket/cache"], DIRECTORY),
    (read, "cacheBytes", ["0", "x"], SIZE),
    (read, "maxBytesPerPartition", ["0", "-1m", "m", "1x", "1.5g", "9" * 19 + "t"], SIZE),
    (read, "failOnDataLoss", ["yes", "1", "", "tru"], "true or false"),
    (read, "includeHeaders", ["no"], "true or false"),
    (read, "layout", ["pulsar", ""], LAYOUTS),
    (read, "isolation", ["committed"], ISOLATION),
    (read, "startingOffsetsByTimestampStrategy", ["earliest"], "one of error, latest"),
    (read, "path", ["hdfs://host/log", "hdfs:/log"], "a directory of a mounted file system"),
    (read, "path", ["", " ", "file:", "file://nas/log"], "a directory"),
    (stream, "maxOffsetsPerTrigger", ["0", "all"], POSITIVE),
    (stream, "minOffsetsPerTrigger", ["0"], POSITIVE),
    (stream, "maxBytesPerTrigger", ["10 parsecs"], SIZE),
    (stream, "maxTriggerDelay", ["0s", "1 week", "-5m", "m"], SPAN),
    (stream, "inlineBatchBytes", ["-1", "65m", "", "all"], "0 or a size such as 1m, at most 64m"),
    (stream, "consumerGroup", [" "], "a name"),
    (write, "topic", [""], "a name"),
    (write, "partitioner", ["random"], "murmur2"),
    (write, "createTopic", ["maybe"], "true or false"),
    (write, "numPartitions", ["0"], POSITIVE),
    (write, "compression", ["gzip"], "one of none, lz4, zstd"),
    (read, "includeMetadata", ["1"], "true or false"),
    (read, "mergeSchema", ["yes"], "true or false"),
    (stream, "schemaEvolutionMode", ["rescue"], "one of ignore, fail"),
    (write, "mergeSchema.typeWidening", ["1"], "true or false"),
    (write, "typed", ["typed"], "true or false"),
    (write, "keyColumns", ["", " ", ",", "a,,b", "a,", "a`b", "`a", "``", "`a`b"], NAMES),
    (write, "timestampColumn", ["a,b"], "the name of one column"),
]


@pytest.mark.parametrize(
    ("parse", "name", "text", "expectation"),
    [(parse, name, text, wanted) for parse, name, texts, wanted in BAD for text in texts],
)
def test_bad_values(parse: Any, name: str, text: str, expectation: str) -> None:
    # Spark hands names over in lower case; the message spells them as the documentation does.
    assert message(parse, **{name.lower(): text}) == (
        f"[CURSUS_OPTION_INVALID] Option '{name}' must be {expectation}, got '{text}'."
    )


def test_every_option_is_documented_and_tested() -> None:
    tested = {name for _, name, *_ in GOOD} | {name for _, name, *_ in BAD}
    tested |= {"subscribe", "subscribePattern", "assign", "txnAppId", "txnVersion", "txnMode"}
    tested |= {f"{side}{what}" for side in ("starting", "ending")
               for what in ("Offsets", "OffsetsByTimestamp", "Timestamp")}  # fmt: skip
    assert {option.name for option in OPTIONS} == tested
    assert len(BY_LOWER_NAME) == len(OPTIONS)
    assert all(option.doc.endswith(".") and option.default for option in OPTIONS)
    assert "consumerGroup" not in {option.name for option in options_for("read")}


def test_topics_patterns_and_assignments() -> None:
    by_name = read(subscribe=" a, b ,,a").subscription
    assert by_name.named() == ("a", "b")
    assert by_name.includes("a", 9)
    assert not by_name.includes("c", 0)
    by_pattern = o.parse_read_options({"path": "/p", "subscribePattern": "ord.*"}).subscription
    assert by_pattern.includes("orders", 0)
    assert not by_pattern.includes("my-orders", 0)
    assert by_pattern.named() == ()
    blanks = o.parse_read_options({"path": "/p", "subscribePattern": " ord.* "}).subscription
    assert blanks == by_pattern
    text = '{"b":[1,0,1],"a":[2]}'
    assigned = o.parse_read_options({"path": "/p", "assign": text}).subscription
    assert assigned.partitions == (("a", (2,)), ("b", (0, 1)))
    assert assigned.named() == ("a", "b")
    assert assigned.includes("b", 0)
    assert not assigned.includes("a", 0)
    assert o.parse_read_options({"path": "/p", "topic": "a,b"}).subscription == by_name


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("subscribe", "", "No topics to subscribe to as specified value for option 'subscribe' is "
         "''."),
        ("topic", " , ", "No topics to subscribe to as specified value for option 'topic' is "
         "' , '."),
        ("subscribePattern", "", "Pattern to subscribe is empty as specified value for option "
         "'subscribePattern' is ''."),
        ("subscribePattern", "a[", "Option 'subscribePattern' must be a regular expression "
         "(unterminated character set at position 1), got 'a['."),
        *(("subscribePattern", text, "Option 'subscribePattern' is a regular expression of Python, "
           f"which has no '{part}'. {hint}. Got '{text}'.")
          for text, part, hint in (
              (r"t-\p{Alpha}+", r"\p{Alpha}", "Write the characters, such as [a-zA-Z]"),
              (r"[\p{Lu}_]+", r"\p{Lu}", "Write the characters, such as [A-Z]"),
              (r"\P{N}+", r"\P{N}", "Write the characters, such as [^0-9]"),
              (r"\pL+", r"\pL", "Write the characters, such as [a-zA-Z]"),
              (r"\p{IsGreek}", r"\p{IsGreek}", "Write the characters, such as [a-zA-Z0-9._-]"),
              (r"\Qa.b\E", r"\Q", "Write a backslash before each special character"),
              ("[a-z&&[^x]]+", "&&", "Write the characters that are left"))),
        *(("assign", text, "Option 'assign': expected JSON such as "
           '{"topicA":[0,1],"topicB":[0,1]}, got ' + f"'{text}'.")
          for text in ("", "{}", "[]", '{"a":0}', '{"a":[]}', '{"a":[-1]}', '{"a":["0"]}',
                       '{"a":[true]}', '{"a":[2147483648]}', '{"":[0]}', '{"a":[0],"a":[1]}')),
    ],
)  # fmt: skip
def test_bad_subscriptions(name: str, text: str, expected: str) -> None:
    found = message(o.parse_read_options, {"path": "/p", name: text})
    assert found == f"[CURSUS_OPTION_INVALID] {expected}"
