"""Defaults, rules between options, unknown options, and what catalog tables remember."""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from cursus_spark.options import parse as o
from cursus_spark.options.read_options import EARLIEST, GROUP, LATEST, Bound
from tests.support.parsed_options import READ, WRITE, message, read, stream, write


def test_defaults_of_reads() -> None:
    found = read()
    assert (found.path, found.layout, found.isolation) == ("/data/log", "auto", "read_committed")
    assert (found.starting.default, found.ending.default) == (EARLIEST, LATEST)
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert found.by_timestamp_strategy == "error"
    assert found.max_bytes_per_partition == 128 * 1024 * 1024
    assert found.min_partitions is found.max_records_per_partition is None
    streamed = stream()
    assert streamed.starting.default == LATEST
    assert streamed.max_trigger_delay_ms == 900_000
    assert streamed.max_offsets_per_trigger is streamed.max_bytes_per_trigger is None
    assert streamed.min_offsets_per_trigger is None
    assert streamed.consumer_group is None


def test_defaults_of_writes() -> None:
    expected = {
        "path": "/data/log", "topic": "orders", "layout": "auto",
        "create_topic": True, "num_partitions": None, "compression": None, "txn_app_id": None,
        "typed": None, "key_columns": None, "timestamp_column": None,
        "merge_schema": False, "type_widening": False, "storage": (),
    }  # fmt: skip
    assert dataclasses.asdict(write()) == {**expected, "txn_version": None, "txn_mode": "last"}
    assert dataclasses.asdict(o.parse_stream_write_options(WRITE)) == expected


def test_one_way_to_choose_topics_is_required() -> None:
    listed = "for the cursus source: subscribe, subscribePattern, assign."
    assert message(o.parse_read_options, {"path": "/p"}) == (
        f"[CURSUS_OPTION_MISSING] One of the following options must be specified {listed} "
        "For a catalog table add WITH (subscribe = '...')."
    )
    assert message(read, topic="a") == (
        f"[CURSUS_OPTION_CONFLICT] Only one of the following options can be specified {listed} "
        "Given: topic, subscribe."
    )


def test_path_is_required() -> None:
    need = "[CURSUS_OPTION_MISSING] Option 'path' must be specified: the directory of the log. Use "
    hint = (" (Options given in CREATE TABLE do not reach INSERT; use INSERT INTO t WITH "
            "(path = '...', topic = '...').)")  # fmt: skip
    select = " For a catalog table: SELECT ... FROM t WITH (path = '...', subscribe = '...')."
    for parse, verb, tail in [
        (o.parse_read_options, "load", select), (o.parse_stream_read_options, "load", select),
        (o.parse_write_options, "save", hint), (o.parse_stream_write_options, "start", hint),
    ]:  # fmt: skip
        assert message(parse, {"topic": "a"}) == (
            f'{need}.{verb}("/data/log") or .option("path", "/data/log").{tail}'
        )


def test_paths_become_absolute_directories() -> None:
    assert read(path="file:/data/my log").path == "/data/my log"
    assert read(path="file:///data/log/").path == "/data/log"
    assert read(path="FILE://localhost/data/log").path == "/data/log"
    assert read(path="logs").path == os.path.abspath("logs")
    assert o.parse_read_options({"paths": '["/p"]', "subscribe": "a"}).path == "/p"
    assert message(o.parse_read_options, {"paths": '["/p","/q"]', "subscribe": "a"}) == (
        '[CURSUS_OPTION_INVALID] A cursus query reads one directory, got \'["/p","/q"]\'. '
        "Use union to read several."
    )


def test_unknown_options_are_refused_with_a_suggestion() -> None:
    unknown = "[CURSUS_OPTION_UNKNOWN] Unknown option"
    assert message(read, startingOffset="x") == (
        f"{unknown} 'startingOffset'. Did you mean 'startingOffsets'?"
    )
    assert message(stream, maxoffsetpertrigger="1") == (
        f"{unknown} 'maxoffsetpertrigger'. Did you mean 'maxOffsetsPerTrigger'?"
    )
    assert message(read, **{"kafka.bootstrap.servers": "h:1"}) == (
        f"{unknown} 'kafka.bootstrap.servers'. There is no broker: set 'path' to the directory of "
        "the log."
    )
    assert message(write, zzz="1") == (
        f"{unknown} 'zzz'. Known options: path, layout, topic, mergeSchema, "
        "mergeSchema.typeWidening, partitioner, createTopic, "
        "numPartitions, typed, keyColumns, timestampColumn, compression, txnAppId, txnVersion, "
        "txnMode."
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("kafka.group.id", "Use 'consumerGroup', in a stream."),
        ("groupIdPrefix", "Use 'consumerGroup', in a stream."),
        ("kafka.isolation.level", "Use 'isolation'."),
        ("kafka.compression.type", "Use 'compression'."),
        ("kafka.ssl.keystore.location", "There is no broker to connect to: remove it. Permissions "
         "of files protect a log."),
        ("kafka.linger.ms", "There is no broker: set 'path' to the directory of the log."),
        ("fetchOffset.numRetries", "There is no broker: set 'path' to the directory of the log."),
    ],
)  # fmt: skip
def test_options_of_kafka_name_our_equivalent(name: str, hint: str) -> None:
    expected = f"[CURSUS_OPTION_UNKNOWN] Unknown option '{name}'. {hint}"
    # Spark passes keys in lower case.
    assert {message(stream, **{key: "x"}) for key in (name, name.lower())} == {expected}


def test_all_unknown_options_are_listed_at_once_as_they_were_written() -> None:
    given = {"kafka.group.id": "g", "minPartition": "1", "Kafka.Isolation.Level": "x"}
    text = "Unknown options 'kafka.group.id', 'minPartition', 'Kafka.Isolation.Level'"
    hints = (
        "'kafka.group.id': Use 'consumerGroup', in a stream. 'minPartition': Did you mean "
        "'minPartitions'? 'Kafka.Isolation.Level': Use 'isolation'."
    )
    assert message(read, **given) == f"[CURSUS_OPTION_UNKNOWN] {text}. {hints}"
    found = message(read, **given, Zzz="1")
    assert found.startswith(f"[CURSUS_OPTION_UNKNOWN] {text}, 'Zzz'. {hints} Known options: path, ")


def test_keys_of_spark_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    write(checkpointLocation="/c", queryName="q")
    table = {"provider": "cursus", "owner": "me", "location": "file:/x", "comment": "c",
             "team": "data", "option.subscribe": "orders"}  # fmt: skip
    read(**table)
    assert caplog.records == []
    assert "Unknown option 'minPartition'" in message(
        read, **table, **{"minPartition": "1", "option.minPartition": "1"}
    )


def test_options_of_other_uses_are_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read(maxOffsetsPerTrigger="not even parsed")
        write(startingOffsets="earliest")
    assert [record.getMessage() for record in caplog.records] == [
        "Option 'maxOffsetsPerTrigger' is ignored: it is for stream read.",
        "Option 'startingOffsets' is ignored: it is for read and stream read.",
    ]


def test_json_without_a_default_leaves_partitions_out() -> None:
    times = {"startingOffsetsByTimestamp": '{"orders":{"1":1000}}'}
    offsets = {"startingOffsets": '{"orders":{"0":5}}'}
    assert stream(**times).starting.leaves_out("orders", 0)
    assert stream(**offsets).starting.leaves_out("orders", 1)
    assert not stream(**times, **offsets).starting.leaves_out("orders", 1)
    assert stream(**times, **offsets).starting.leaves_out("orders", 2)
    assert not stream(**times, startingOffsets="earliest").starting.leaves_out("orders", 0)
    assert not stream().starting.leaves_out("orders", 0)


def test_a_time_for_all_precedes_times_by_partition_and_these_precede_offsets() -> None:
    offsets = {"startingOffsets": '{"orders":{"0":5,"1":6}}'}
    times = {"startingOffsetsByTimestamp": '{"orders":{"1":1000}}'}
    assert read(**offsets).starting.bound("orders", 1) == Bound("offset", 6)
    both = read(**offsets, **times).starting
    assert both.bound("orders", 0) == Bound("offset", 5)
    assert both.bound("orders", 1) == Bound("timestamp", 1_000_000)
    assert both.option == "startingOffsetsByTimestamp"
    all_three = read(**offsets, **times, startingTimestamp="2026-01-01").starting
    assert all_three.bound("orders", 1) == Bound("timestamp", 1_767_225_600_000_000)
    ended = read(endingOffsets='{"orders":{"0":9}}', endingTimestamp="1").ending
    assert ended.bound("orders", 0) == Bound("timestamp", 1000)


@pytest.mark.parametrize(
    ("text", "where"),
    [("latest", ""), ('{"orders":{"0":-1}}', " for orders-0"), ('{"a":"latest"}', " for a")],
)
def test_a_batch_cannot_start_at_latest(text: str, where: str) -> None:
    assert message(read, startingOffsets=text) == (
        f"[CURSUS_START_LATEST_IN_BATCH] startingOffsets{where} can't be latest in a batch query. "
        "Use earliest, an offset, or readStream."
    )
    assert stream(startingOffsets=text)


def test_a_batch_cannot_end_at_earliest() -> None:
    assert message(read, endingOffsets='{"orders":{"0":-2}}') == (
        "[CURSUS_END_EARLIEST_IN_BATCH] endingOffsets for orders-0 can't be earliest in a batch "
        "query. Use latest or an offset."
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":8}}'},
            "startingOffsets for a-0 is 9, after endingOffsets, which is 8.",
        ),
        (
            {"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"},
            "startingTimestamp is 2026-01-02T00:00:00Z, after endingTimestamp, which is "
            "2026-01-01T00:00:00Z.",
        ),
    ],
)
def test_a_batch_cannot_end_before_it_starts(options: dict[str, str], expected: str) -> None:
    found = message(read, **options)
    assert found == f"[CURSUS_OFFSETS_INVALID] {expected} Set a start before the end."
    assert read(startingOffsets='{"a":{"0":9}}', endingOffsets='{"a":{"0":9}}')


@pytest.mark.parametrize(
    ("name", "noun"),
    [
        ("endingOffsets", "offset"),
        ("endingOffsetsByTimestamp", "offset"),
        ("endingTimestamp", "timestamp"),
    ],
)
def test_a_stream_has_no_end(name: str, noun: str) -> None:
    assert message(stream, **{name.lower(): "latest"}) == (
        f"[CURSUS_OPTION_INVALID] Option '{name}': ending {noun} not valid in streaming queries. "
        "Remove it, or use spark.read."
    )


def test_a_stream_may_start_where_its_group_stands() -> None:
    found = stream(startingOffsets="group", consumerGroup="g")
    assert found.starting.default == GROUP
    assert message(stream, startingOffsets="group") == (
        "[CURSUS_OPTION_MISSING] Option 'consumerGroup' must be specified with startingOffsets "
        "'group'."
    )
    assert message(read, startingOffsets="group").startswith("[CURSUS_OFFSETS_INVALID]")


def test_the_minimum_of_a_trigger_is_not_above_its_maximum() -> None:
    stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    assert message(stream, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="10") == (
        "[CURSUS_OPTION_INVALID] Option 'minOffsetsPerTrigger' must be at most "
        "maxOffsetsPerTrigger (10), got '20'."
    )


def test_transactions_need_both_options_in_a_batch() -> None:
    found = write(txnAppId="app", txnVersion="0")
    assert (found.txn_app_id, found.txn_version) == ("app", 0)
    missing = "[CURSUS_OPTION_MISSING] Option '{}' must be specified with '{}': give both or "
    assert message(write, txnAppId="a") == missing.format("txnVersion", "txnAppId") + "neither."
    assert message(write, txnVersion="1") == missing.format("txnAppId", "txnVersion") + "neither."
    assert found.txn_mode == "last"
    assert write(txnAppId="app", txnVersion="0", txnMode="exact").txn_mode == "exact"
    assert message(write, txnMode="exact") == (
        "[CURSUS_OPTION_MISSING] Options 'txnAppId' and 'txnVersion' must be specified with "
        "'txnMode'."
    )
    assert message(write, txnAppId="a", txnVersion="-1") == (
        "[CURSUS_OPTION_INVALID] Option 'txnVersion' must be a non-negative integer, got '-1'."
    )


def test_transactions_of_a_stream_have_no_version() -> None:
    assert o.parse_stream_write_options({**WRITE, "txnAppId": "app"}).txn_app_id == "app"
    assert message(o.parse_stream_write_options, {**WRITE, "txnVersion": "1"}) == (
        "[CURSUS_OPTION_INVALID] Option 'txnVersion' not valid in streaming queries: the batch id "
        "is the version. Remove it, or use foreachBatch."
    )


def test_catalog_options_are_those_of_create_table() -> None:
    raw = CaseInsensitiveDict(
        {"path": "file:/p", "location": "file:/p", "provider": "cursus", "topic": "orders",
         "option.topic": "orders", "startingOffsets": "earliest", "team": "data"}
    )  # fmt: skip
    found = o.catalog_options(raw)
    assert found == {"path": "file:/p", "topic": "orders", "startingOffsets": "earliest"}
    assert o.catalog_options(READ) is None


def test_a_catalog_table_is_read_with_its_own_options() -> None:
    origin = {"path": "/p", "topic": "orders", "startingOffsets": "earliest", "minPartitions": "3"}
    found = o.parse_read_options({}, origin)
    assert (found.path, found.subscription.topics, found.min_partitions) == ("/p", ("orders",), 3)
    other = o.parse_stream_read_options({"subscribe": "b", "minpartitions": "4"}, origin)
    assert (other.subscription.topics, other.min_partitions) == (("b",), 4)
    assert other.starting.default == EARLIEST
    elsewhere = o.parse_read_options({"path": "/q", "topic": "c"}, origin)
    assert (elsewhere.path, elsewhere.min_partitions) == ("/q", None)


def test_a_query_with_bounds_of_its_own_forgets_the_tables() -> None:
    times = {"startingTimestamp": "5", "endingTimestamp": "9"}
    origin = {"path": "/p", "topic": "orders", **times}
    table = o.parse_read_options({}, origin)
    by_offsets = {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":7}}'}
    query = o.parse_read_options(by_offsets, origin)
    assert query == o.parse_read_options({"path": "/p", "topic": "orders", **by_offsets})
    half = o.parse_read_options({"endingOffsets": by_offsets["endingOffsets"]}, origin)
    assert (half.starting, half.ending) == (table.starting, query.ending)


def test_options_of_spark_are_case_insensitive_and_the_result_is_picklable() -> None:
    found = o.parse_stream_read_options(CaseInsensitiveDict({**READ, "consumerGroup": "g"}))
    assert found.consumer_group == "g"
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.path = "/x"  # type: ignore[misc]
